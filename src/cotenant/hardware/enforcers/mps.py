"""Enforces compute shares with NVIDIA's Multi-Process Service (MPS), where its control daemon runs.

It is an enforcer of compute. A memory limit of MPS is for each client process, not for a container, so it is
a second fence and never replaces an enforcer of memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from cotenant.dialects.mps import client_limits
from cotenant.dialects.names import ACTIVE_THREADS, MPS_MEMORY_LIMIT, MPS_PIPE_FOLDER
from cotenant.hardware import slots
from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Confirmation
from cotenant.hardware.enforcers.shim import IN_CONTAINER, SLOT_IN_CONTAINER
from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.place import Place, place_of
from cotenant.hardware.slots import Limits, Permissions, SlotUnusable

LINK = "mps"
"""In the slot of a container that MPS holds to its share of compute: a link to the folder of its daemon."""
PIPE_IN_CONTAINER = SLOT_IN_CONTAINER / LINK
PIPES_IN_CONTAINER = IN_CONTAINER / "mps"
"""Has the pipe folder of each daemon of the node."""


class Mps:
    name = "mps"
    needs = "a running nvidia-cuda-mps-control"

    def __init__(self, environ: Mapping[str, str], compute: int, place: Place | None = None) -> None:
        """`environ` says where the daemon is, unless `place` does; `compute` is the percentage of a GPU's
        compute to hold to.
        """
        self._environ = environ
        self._place = place
        self._compute = compute

    @property
    def _pipe(self) -> Path:
        return (self._place or place_of(self._environ)).pipe

    def availability(self) -> Availability:
        if is_running(self._environ, self._place):
            return Availability(True, f"the MPS control daemon runs at {self._pipe}")
        return Availability(False, f"no MPS control daemon runs at {self._pipe}")

    def process_environment(self, slot: Path, environ: Mapping[str, str]) -> dict[str, str]:
        """MPS reads it when a process creates its first context. Memory is limited only where the slot's
        mode is to enforce limits.
        """
        own = {**environ, ACTIVE_THREADS: str(self._compute)}
        own.pop(MPS_MEMORY_LIMIT, None)
        try:
            limits = slots.read_limits(slot)
        except SlotUnusable:
            limits = None
        if limits is not None and limits.mode == "enforce":
            own[MPS_MEMORY_LIMIT] = client_limits([card.bytes for card in limits.cards])
        if self._place is not None:
            own[MPS_PIPE_FOLDER] = str(self._place.pipe)
        return own

    def container_attachment(self, slot: Path) -> Attachment:  # noqa: ARG002
        """A pod's container gets its percentage from an annotation of its own, the rest from the agent's part
        for MPS.
        """
        return Attachment()

    def prepare(self, slot: Path, limits: Limits, permissions: Permissions) -> None:
        """The environment is all that MPS needs; the slot's files belong to the enforcer of memory."""

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:  # noqa: ARG002
        if not is_running(self._environ, self._place):
            return Confirmation("fails", self.availability().reason)
        return Confirmation("unknown", "the MPS control daemon runs; it was not asked for its clients")

    def change(self, slot: Path, sizes: Mapping[str, int]) -> None:
        """A process keeps the memory limit that it has begun with."""

    def tear_down(self, slot: Path, *, force: bool = False) -> bool:  # noqa: ARG002
        return True


def is_running(environ: Mapping[str, str], place: Place | None = None) -> bool:
    """Checks that the control daemon which this environment would reach has its pipe there and runs. The lock
    on its pipe folder tells; where a version has none, its pid file does.
    """
    at = place or place_of(environ)
    if not (at.pipe / "control").exists():
        return False
    if at.lock.exists():
        return daemon.holder(at) is not None
    try:
        pid = int((at.pipe / "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return True  # the pipe is there; not every version writes its pid, or for every user
    return Path(f"/proc/{pid}").exists()

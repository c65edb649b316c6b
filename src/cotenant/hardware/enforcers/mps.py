"""Enforces compute shares with NVIDIA's Multi-Process Service (MPS), where its control daemon runs.

It holds compute only: a memory limit of MPS is for each client process, not for a container, so it never
replaces an enforcer of memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from cotenant.dialects.names import ACTIVE_THREADS
from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Confirmation
from cotenant.hardware.slots import Limits, Permissions

_PIPE_FOLDER = "/tmp/nvidia-mps"  # noqa: S108 -- it is NVIDIA's choice


class Mps:
    name = "mps"
    needs = "a running nvidia-cuda-mps-control"

    def __init__(self, environ: Mapping[str, str], compute: int) -> None:
        """`environ` says where the daemon is; `compute` is the percentage of a GPU's compute to hold to."""
        self._environ = environ
        self._compute = compute

    def availability(self) -> Availability:
        if is_running(self._environ):
            return Availability(True, f"the MPS control daemon runs at {_pipe_folder(self._environ)}")
        return Availability(False, f"no MPS control daemon runs at {_pipe_folder(self._environ)}")

    def process_environment(self, slot: Path, environ: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """MPS reads it when a process creates its first context."""
        return {**environ, ACTIVE_THREADS: str(self._compute)}

    def container_attachment(self, slot: Path) -> Attachment:  # noqa: ARG002
        """A pod's container gets its percentage from an annotation of its own."""
        return Attachment()

    def prepare(self, slot: Path, limits: Limits, permissions: Permissions) -> None:
        """The environment is all that MPS needs; the slot's files belong to the enforcer of memory."""

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:  # noqa: ARG002
        if not is_running(self._environ):
            return Confirmation("fails", self.availability().reason)
        return Confirmation("unknown", "the MPS control daemon runs; it was not asked for its clients")

    def change(self, slot: Path, sizes: Mapping[str, int]) -> None:
        """Memory is not held here."""

    def tear_down(self, slot: Path, *, force: bool = False) -> bool:  # noqa: ARG002
        return True


def is_running(environ: Mapping[str, str]) -> bool:
    """Checks that the control daemon which this environment would reach has its pipe there and runs."""
    folder = _pipe_folder(environ)
    if not (folder / "control").exists():
        return False
    try:
        pid = int((folder / "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return True  # the pipe is there; not every version writes its pid, or for every user
    return Path(f"/proc/{pid}").exists()


def _pipe_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CUDA_MPS_PIPE_DIRECTORY") or _PIPE_FOLDER)

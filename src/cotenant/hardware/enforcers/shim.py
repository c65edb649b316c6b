"""Enforces memory limits with the shim, a library that is preloaded into every program of a slot.

The shim (csrc/shim) stands between a program and the CUDA driver: it counts each allocation in the slot's
`usage` and refuses what would exceed `limits`. A process on this machine gets it through LD_PRELOAD. A
container gets it through /etc/ld.so.preload, which no program can drop by clearing its environment.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.hardware import libraries, slots
from cotenant.hardware.slots import Limits, Permissions, SlotUnusable

if TYPE_CHECKING:  # `cotenant run` starts without them
    from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Confirmation

_MOST_NAMED = 8
"""Processes that a message names."""
WATCH = "watch"
"""The enforcer that is left where the shim does not hold a process."""
LIBRARY = "libcotenant.so"
SLOT_VARIABLE = "COTENANT_SLOT"
"""Names the slot's folder to the shim; without it the shim looks at SLOT_IN_CONTAINER."""
LEFT_SLOT_VARIABLE = "COTENANT_LEFT_SLOT"
"""Names the slot to a `cotenant` that was called in it and has left it, to see the GPUs as they are."""
PRELOAD_VARIABLE = "LD_PRELOAD"
PRELOAD_FILE = Path("/etc/ld.so.preload")
IN_CONTAINER = Path("/run/cotenant")
"""All else that a container finds of Cotenant is in this folder."""
SLOT_IN_CONTAINER = IN_CONTAINER / "slot"
LIBRARY_IN_CONTAINER = IN_CONTAINER / "lib" / LIBRARY


class Shim:
    name = "shim"
    needs = "programs linked dynamically against glibc"

    def __init__(self, library: Path, node: Path | None = None, *, preload: bool = True) -> None:
        """`library` is loaded into processes on this machine; `node` is the folder from which containers
        mount it, None where there are none. `preload` is False for a program that would not start with it:
        musl's loader aborts at a library for glibc.
        """
        self.library = library
        self._node = node
        self._preload = preload

    def availability(self) -> Availability:
        from cotenant.hardware.enforcers.enforcer import Availability

        if self.library.is_file():
            return Availability(True, f"{self.library} is there")
        return Availability(False, f"{self.library} is missing")

    def process_environment(self, slot: Path, environ: Mapping[str, str]) -> dict[str, str]:
        """The shim comes before what the user preloads, so that nothing allocates past it."""
        own = without_slot(environ)
        own[SLOT_VARIABLE] = str(slot)
        if self._preload:
            own[PRELOAD_VARIABLE] = ":".join([str(self.library), *preloads(own)])
        return own

    def container_attachment(self, slot: Path) -> Attachment:
        """`usage` is mounted writable over the read-only folder."""
        from cotenant.hardware.enforcers.enforcer import Attachment, Mount

        library, preload_file = self._on_node()
        return Attachment(
            (
                Mount(SLOT_IN_CONTAINER, slot),
                Mount(SLOT_IN_CONTAINER / "usage", slot / "usage", read_only=False),
                Mount(LIBRARY_IN_CONTAINER, library),
                Mount(PRELOAD_FILE, preload_file),
            )
        )

    def install(self) -> None:
        """Places what containers mount. Does nothing where the same is there already."""
        library, preload_file = self._on_node()
        libraries.place(library, libraries.present(self.library).read_bytes())
        libraries.place(preload_file, f"{LIBRARY_IN_CONTAINER}\n".encode())

    def prepare(self, slot: Path, limits: Limits, permissions: Permissions) -> None:
        """Restores what containers mount if it was removed: the container runtime would create a folder in
        place of a missing file, the loader would ignore it, and the program would run without a limit.
        """
        if self._node is not None and not all(file.is_file() for file in self._on_node()):
            self.install()
        slots.create(slot, limits, permissions)

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:
        """A process with an entry in `usage` has loaded the shim. One without the shim (static, musl, preload
        dropped, a library that SELinux does not let it read: the loader then goes on without it) has none: it
        shows only if the driver reports it.
        """
        from cotenant.hardware.enforcers.enforcer import Confirmation

        try:
            slots.read_limits(slot)
            entries = {process.pid for process in slots.read_usage(slot).processes}
        except SlotUnusable as error:
            pids = frozenset(seen)
            return Confirmation("fails", str(error), pids, WATCH, pids)
        free = frozenset(seen) - entries
        if free:
            named = ", ".join(map(str, sorted(free)[:_MOST_NAMED]))
            reason = f"processes that use a GPU without the shim: {named}"
            return Confirmation("fails", reason, free, WATCH, free)
        count = len(entries)
        if count:
            return Confirmation("holds", f"processes that use a GPU with the shim: {count}", by=self.name)
        if slots.is_held(slot):
            return Confirmation("unknown", "the command runs, and no process of it has used a GPU yet")
        return Confirmation("unknown", "no process uses the slot")

    def change(self, slot: Path, sizes: Mapping[str, int]) -> None:
        """The shim reads `limits` at every allocation."""
        slots.set_limits(slot, sizes)

    def tear_down(self, slot: Path, *, force: bool = False) -> bool:
        """What containers mount stays: it belongs to the node, not to a slot."""
        return slots.close(slot, force=force)

    def _on_node(self) -> tuple[Path, Path]:
        """The library and the preload file, as containers mount them. Running containers have these paths in
        the kubelet's checkpoint: they never change.
        """
        if self._node is None:
            raise ValueError("this shim has no folder from which containers mount it")
        return self._node / "lib" / LIBRARY, self._node / PRELOAD_FILE.name


def preloads(environ: Mapping[str, str]) -> list[str]:
    """Lists what LD_PRELOAD names. The loader accepts blanks as well as colons between the names."""
    return environ.get(PRELOAD_VARIABLE, "").replace(":", " ").split()


def is_preloaded(environ: Mapping[str, str]) -> bool:
    return any(os.path.basename(entry) == LIBRARY for entry in preloads(environ))


def without_slot(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment as it would be outside any slot: for a `cotenant` that is called inside one."""
    slot = (SLOT_VARIABLE, LEFT_SLOT_VARIABLE, PRELOAD_VARIABLE)
    own = {name: value for name, value in environ.items() if name not in slot}
    others = [entry for entry in preloads(environ) if os.path.basename(entry) != LIBRARY]
    if others:
        own[PRELOAD_VARIABLE] = ":".join(others)
    return own


def leave_slot(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment outside any slot, with a note of the slot that was left."""
    own = without_slot(environ)
    if slot := environ.get(SLOT_VARIABLE):
        own[LEFT_SLOT_VARIABLE] = slot
    return own

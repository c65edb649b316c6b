"""Enforces memory limits with the driver itself, on a container's cgroup (r615 and later), behind the shim.

The driver's limit cannot be bypassed: it counts all that the processes of the cgroup hold, whatever they are
linked with. But it ends a process that passes it. So the shim stays in front: what it sees it refuses, and
the program can go on; and it holds from the first instruction, while the cgroup of a container is found only
after its start.

Only `enforce` sets the driver's limit. In the other modes nothing may be ended, and the shim counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from cotenant.core.errors import CotenantError
from cotenant.core.units import format_bytes
from cotenant.hardware import slots
from cotenant.hardware.driver_limits import CgroupLimit
from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Confirmation
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.slots import Limits, Permissions, SlotUnusable

ENFORCE = "enforce"


class MemoryLimits(Protocol):
    """`hardware/driver_limits.py`"""

    def hold(self, uuid: str, cgroup: Path, size: int | None) -> CgroupLimit: ...

    def probe(self, cgroup: Path) -> str: ...


class Driver:
    name = "driver"
    needs = "an NVIDIA driver from r615 on, cgroup v2, GPUs that are not cut into MIG instances, and root"

    def __init__(
        self,
        shim: Shim,
        limits: MemoryLimits,
        cgroups: Callable[[str, Path], Sequence[Path]],
        scratch: Callable[[], AbstractContextManager[Path]],
    ) -> None:
        """`cgroups` finds the cgroups of a slot's containers, from the owner in its limits and its folder;
        `scratch` makes one to try things on.
        """
        self.shim = shim
        self._limits = limits
        self._cgroups = cgroups
        self._scratch = scratch
        self._held: dict[Path, tuple[Path, ...]] = {}
        """By slot: the cgroups that have its limits."""

    def availability(self) -> Availability:
        first = self.shim.availability()
        if not first.available:
            return first
        try:
            with self._scratch() as cgroup:
                return Availability(True, self._limits.probe(cgroup))
        except CotenantError as error:
            return Availability(False, str(error))
        except OSError as error:
            return Availability(False, f"no cgroup can be made to try a limit on: {error}")

    def process_environment(self, slot: Path, environ: Mapping[str, str]) -> dict[str, str]:
        return self.shim.process_environment(slot, environ)

    def container_attachment(self, slot: Path) -> Attachment:
        """The same as the shim's: a node may get or lose the driver's limits while its containers run."""
        return self.shim.container_attachment(slot)

    def prepare(self, slot: Path, limits: Limits, permissions: Permissions) -> None:
        self.shim.prepare(slot, limits, permissions)

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:
        """Sets the limits where they are not as asked, and reads them back. What the shim alone holds is said
        so.
        """
        try:
            limits = slots.read_limits(slot)
        except SlotUnusable:
            return self.shim.confirm(slot, seen)
        cgroups = tuple(self._cgroups(limits.owner, slot))
        held, errors = self._hold(limits, cgroups)
        self._held[slot] = cgroups
        if cgroups and not errors and limits.mode == ENFORCE:
            unrecorded = self.shim.confirm(slot, seen).unrecorded if seen else frozenset()
            return Confirmation("holds", ", ".join(held), by=self.name, unrecorded=unrecorded)
        with_shim = self.shim.confirm(slot, seen)
        if not cgroups:
            errors = ["no cgroup of the container is found"]
        elif limits.mode != ENFORCE:
            errors.insert(0, f"mode {limits.mode}: the driver's limit is not set")
        return with_shim._replace(reason="; ".join((with_shim.reason, *errors)))

    def _hold(self, limits: Limits, cgroups: Sequence[Path]) -> tuple[list[str], list[str]]:
        """Returns what is in force, and what went wrong: a GPU that does not answer does not keep the others
        from their limit.
        """
        held, errors = [], []
        for cgroup in cgroups:
            for card in limits.cards:
                size = card.bytes if limits.mode == ENFORCE else None
                try:
                    found = self._limits.hold(card.uuid, cgroup, size)
                except CotenantError as error:
                    errors.append(str(error))
                    continue
                held.append(f"{format_bytes(found.used)} of {format_bytes(card.bytes)} on {card.uuid}")
        return held, errors

    def change(self, slot: Path, sizes: Mapping[str, int]) -> None:
        """The shim first: a limit that shrinks is then refused before it ends a process."""
        self.shim.change(slot, sizes)
        limits = slots.read_limits(slot)
        _, errors = self._hold(limits, self._cgroups(limits.owner, slot))
        if errors:
            raise CotenantError("; ".join(errors))

    def tear_down(self, slot: Path, *, force: bool = False) -> bool:
        """Limits go with their cgroup; where that outlives the slot, they are taken away."""
        cards: tuple[str, ...] = ()
        with contextlib.suppress(SlotUnusable):
            cards = tuple(card.uuid for card in slots.read_limits(slot).cards)
        if not self.shim.tear_down(slot, force=force):
            return False
        for cgroup in self._held.pop(slot, ()):
            for uuid in cards:
                if not cgroup.is_dir():
                    break
                with contextlib.suppress(CotenantError):
                    self._limits.hold(uuid, cgroup, None)
        return True

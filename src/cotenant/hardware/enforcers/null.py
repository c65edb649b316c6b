"""Enforces nothing: the slot records what was granted and which processes run, and no limit is held.

The record is kept because containers are admitted to a GPU by what the slots on it say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from cotenant.hardware import slots
from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Confirmation
from cotenant.hardware.slots import Limits, Permissions


class Null:
    name = "none"
    needs = "nothing"

    def availability(self) -> Availability:
        return Availability(True, "it is always there, and enforces nothing")

    def process_environment(self, slot: Path, environ: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        return dict(environ)

    def container_attachment(self, slot: Path) -> Attachment:  # noqa: ARG002
        return Attachment()

    def prepare(self, slot: Path, limits: Limits, permissions: Permissions) -> None:
        slots.create(slot, limits, permissions)

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:  # noqa: ARG002
        pids = frozenset(seen)
        return Confirmation("fails", "nothing enforces limits here", pids, self.name, pids)

    def change(self, slot: Path, sizes: Mapping[str, int]) -> None:
        slots.set_limits(slot, sizes)

    def tear_down(self, slot: Path, *, force: bool = False) -> bool:
        return slots.close(slot, force=force)

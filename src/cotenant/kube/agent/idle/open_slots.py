"""Keeps the `usage` files of slots open between two looks, so that a look reads each of them by one call.

Hundreds of slots are read every two seconds. A file that is open keeps its memory after it was deleted: so
what is not looked at any more is closed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection
from typing import NamedTuple

from cotenant.hardware import slots as slot_files
from cotenant.hardware.slots import Activity
from cotenant.kube.agent.slots.node_slots import NodeSlot

_MOST = 512
"""Files that are kept open: a process may have 1024 unless it is set higher."""


class _Open(NamedTuple):
    slot: NodeSlot
    fd: int
    made: int


class OpenSlots:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._some_new = False
        weakref.finalize(self, _close_all, self._open)

    def read(self, slot: NodeSlot) -> tuple[Activity, int]:
        """Returns the slot's activity, and when it was created; SlotUnusable as those who read them."""
        known = self._open.get(slot.key)
        if known is None or known.slot is not slot:
            self._close(slot.key)
            if len(self._open) >= _MOST:
                return slot.activity(), slot_files.made_at(slot.folder)
            made, self._some_new = slot_files.made_at(slot.folder), True
            known = self._open[slot.key] = _Open(slot, slot_files.open_usage(slot.folder), made)
        return slot_files.read_activity(slot.folder, known.fd), known.made

    def keep(self, slots: Collection[NodeSlot]) -> None:
        """Closes all others."""
        if not self._some_new and len(slots) == len(self._open):
            return
        self._some_new = False
        there = {slot.key: slot for slot in slots}
        for key, each in list(self._open.items()):
            if there.get(key) is not each.slot:
                self._close(key)

    def _close(self, key: str) -> None:
        known = self._open.pop(key, None)
        if known is not None:
            os.close(known.fd)


def _close_all(opened: dict[str, _Open]) -> None:
    for each in opened.values():
        os.close(each.fd)
    opened.clear()

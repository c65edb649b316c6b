"""Stops nothing: what processes hold on a GPU is read from the driver and compared with what was granted.

For images that must start without the shim. Use beyond the grant is reported by whoever looks: on a node the
agent (kube/agent/limits), which makes an event, a metric and, by policy, an eviction of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.hardware import slots
from cotenant.hardware.enforcers.enforcer import Availability, Confirmation
from cotenant.hardware.enforcers.null import Null
from cotenant.hardware.enforcers.shim import WATCH, Shim
from cotenant.hardware.nvml import Readings
from cotenant.hardware.slots import SlotUnusable


class Watch(Null):
    name = WATCH
    needs = "a driver that reports which process holds how much memory (NVML)"

    def __init__(self, read: Callable[[], Readings]) -> None:
        """`read` asks NVML."""
        self._read = read

    def availability(self) -> Availability:
        try:
            cards = self._read().cards
        except CotenantError as error:
            return Availability(False, str(error))
        silent = [str(card.gpu) for card in cards if any(each.bytes is None for each in card.processes)]
        if silent:
            return Availability(
                False, f"the driver does not report what processes hold on {', '.join(silent)}"
            )
        return Availability(True, f"the driver reports the processes on its GPUs: {len(cards)}")

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:
        """A container that was started before this enforcer was chosen may have the shim still: then it
        holds.
        """
        pids = frozenset(seen)
        try:
            known = {process.pid for process in slots.read_usage(slot).processes}
        except SlotUnusable as error:
            return Confirmation("fails", str(error), pids, self.name, pids)
        if pids and pids <= known:
            return Confirmation("holds", "its processes were started with the shim", by=Shim.name)
        free = pids - known
        return Confirmation("fails", "use beyond the limit is reported, not stopped", free, self.name, free)

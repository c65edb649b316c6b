"""Removes the slots of containers that no longer exist, and cuts files that containers made too large. A slot
in use is never removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from cotenant.core.errors import CotenantError
from cotenant.kube.agent.cards.cgroups import Owner, owners_on_node
from cotenant.kube.agent.slots.checking import is_listed
from cotenant.kube.agent.slots.leaving import Leaving, Reader
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots, Oversized
from cotenant.kube.agent.slots.starting import Record
from cotenant.kube.logs import get_logger

log = get_logger(__name__)


@dataclass
class Cleaning:
    slots: NodeSlots
    kubelet: Record
    api: Reader
    living: Callable[[], AbstractSet[Owner]] = owners_on_node
    """The containers of pods that have a process on this node."""
    oversized: Callable[[Oversized], None] = lambda _: None
    """Called for each slot whose `usage` was cut."""

    async def run(self, every: float = 10.0) -> None:
        """Begins with what a previous agent left half-made. A question without an answer is asked again next
        time.
        """
        self.slots.sweep()
        while True:
            try:
                self.cut()
                await self.clean()
            except CotenantError as error:
                log.warning("slots not cleaned up", error=error)
            await asyncio.sleep(every)

    def cut(self) -> None:
        """Cuts what containers made larger than it is, and reports it."""
        for each in self.slots.cut():
            self.oversized(each)

    async def clean(self) -> list[NodeSlot]:
        """Returns the slots that were removed. The API server is asked only about slots that the kubelet no
        longer lists and that no process uses: most of the time there are none.
        """
        holders = await self.kubelet.holders()
        suspects = [slot for slot in self.slots.read() if not is_listed(slot, holders)]
        removed = await Leaving(self.slots, self.api, self.living).remove_gone(suspects, holders)
        for slot in removed:
            owner = slot.owner
            log.info(
                "slot removed: its container has gone",
                device=slot.key,
                namespace=owner.namespace,
                pod=owner.name,
                uid=owner.uid,
                container=owner.container,
            )
        return removed

"""Removes the slots of containers that no longer exist. A slot in use is never removed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cotenant.core.errors import CotenantError
from cotenant.kube.agent.slots.checking import is_containers, is_listed
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots
from cotenant.kube.agent.slots.starting import Reader, Record, has_gone
from cotenant.kube.logs import get_logger

log = get_logger(__name__)


@dataclass
class Cleaning:
    slots: NodeSlots
    kubelet: Record
    api: Reader

    async def run(self, every: float = 10.0) -> None:
        """Begins with what a previous agent left half-made. A question without an answer is asked again next
        time.
        """
        self.slots.sweep()
        while True:
            try:
                await self.clean()
            except CotenantError as error:
                log.warning("slots not cleaned up", error=error)
            await asyncio.sleep(every)

    async def clean(self) -> list[NodeSlot]:
        """Returns the slots that were removed. The API server is asked only about slots that the kubelet no
        longer lists and that no process uses: most of the time there are none.
        """
        holders = await self.kubelet.holders()
        suspects = [
            slot
            for slot in self.slots.read()
            if is_containers(slot) and not is_listed(slot, holders) and not slot.is_held()
        ]
        answers = await asyncio.gather(*(has_gone(slot, holders, self.api) for slot in suspects))
        removed = [
            slot
            for slot, gone in zip(suspects, answers, strict=True)
            if gone
            and self.slots.remove(slot)  # it checks again that the owner is the same and no process uses it
        ]
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

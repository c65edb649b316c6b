"""Slots of containers that are no more are removed; one that is in use never is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cotenant.core.errors import CotenantError
from cotenant.kube.agent.classic.pod_resources import Holder, Holders
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
        """Begins with what an agent before this one left. What cannot be asked now is asked the next time."""
        self.slots.sweep()
        while True:
            try:
                await self.clean()
            except CotenantError as error:
                log.warning("slots not cleaned up", error=error)
            await asyncio.sleep(every)

    async def clean(self) -> list[NodeSlot]:
        """What was removed. The API server is asked only about slots that the kubelet no longer lists and in
        which nobody lives: on most days, none.
        """
        holders = await self.kubelet.holders()
        suspects = [slot for slot in self.slots.read() if not _listed(slot, holders) and not slot.is_held()]
        answers = await asyncio.gather(*(has_gone(slot, holders, self.api) for slot in suspects))
        removed = [
            slot
            for slot, gone in zip(suspects, answers, strict=True)
            if gone and self.slots.remove(slot)  # which looks again whether it is still this one, and free
        ]
        for slot in removed:
            owner = slot.owner
            log.info(
                "slot removed: its container has gone",
                device=slot.device,
                namespace=owner.namespace,
                pod=owner.pod,
                uid=owner.uid,
                container=owner.container,
            )
        return removed


def _listed(slot: NodeSlot, holders: Holders) -> bool:
    owner = slot.owner
    return Holder(owner.namespace, owner.pod, owner.container) in holders.get(slot.device, ())

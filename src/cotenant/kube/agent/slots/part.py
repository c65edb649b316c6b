"""Keeps the slots in order, as a part of the agent: removes those of containers that have ended, and cuts
files that containers made too large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cotenant.core.units import format_bytes
from cotenant.kube.agent.classic.pod_resources import PodResources
from cotenant.kube.agent.context import NodeContext, own_pods
from cotenant.kube.agent.slots.cleaning import Cleaning
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots, Oversized
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Change
from cotenant.kube.events import EventRecorder
from cotenant.kube.parts.part import Part
from cotenant.kube.settings import Settings

OVERSIZED = "GPUSlotOversized"


class Slots(Part):
    name = "slots"

    def __init__(self, context: NodeContext) -> None:
        self._pods = context.informers[PODS]
        self._recorder = EventRecorder(context.client)
        self._cleaning = Cleaning(
            context.use(NodeSlots), context.use(PodResources), context.client, oversized=self._oversized
        )
        self._pods.store.subscribe(self._on_pod)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_pods(settings),)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(self._recorder.run())
            await self._cleaning.run()
            beside.cancel()

    def _oversized(self, found: Oversized) -> None:
        if found.slot is not None:
            self._record(
                found.slot,
                OVERSIZED,
                f"container {found.slot.owner.container} made /run/cotenant/slot/usage "
                f"{format_bytes(found.bytes)} too large. It was cut: only the shim may write that file",
            )

    def _record(self, slot: NodeSlot, reason: str, message: str) -> None:
        pod = next((each for each in self._pods.store if each.metadata.uid == slot.owner.uid), None)
        if pod is not None:
            self._recorder.record(pod, reason, message)

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.kind == "deleted":
            self._recorder.forget(change.object.metadata.uid)

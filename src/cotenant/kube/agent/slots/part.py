"""Keeps the slots in order, as a part of the agent: removes those of containers that have ended, cuts files
that containers made too large, and reports containers whose limit does not hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cotenant.core.units import format_bytes
from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.classic.pod_resources import PodResources
from cotenant.kube.agent.context import NodeContext, own_pods
from cotenant.kube.agent.grants import container_ids
from cotenant.kube.agent.slots.cleaning import Cleaning
from cotenant.kube.agent.slots.confirming import Confirming
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots, Oversized
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Change
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Part
from cotenant.kube.settings import Settings

log = get_logger(__name__)

LIMIT_NOT_LIVE = "GPULimitNotLive"
OVERSIZED = "GPUSlotOversized"


class Slots(Part):
    name = "slots"

    def __init__(self, context: NodeContext) -> None:
        self._pods = context.informers[PODS]
        self._cards = context.use(Cards)
        self._looked = self._cards.looks()
        self._confirming = context.use(Confirming)
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
            beside = [
                tasks.create_task(self._recorder.run()),
                tasks.create_task(self._confirm_after_looks()),
            ]
            await self._cleaning.run()
            for each in beside:
                each.cancel()

    async def _confirm_after_looks(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            sight, grants = self._cards.sight, self._cards.grants()
            if sight is None or grants is None:
                continue
            before = self._confirming.unlimited
            ids = container_ids(self._pods.store)
            for slot, found in await asyncio.to_thread(self._confirming.look, sight, grants, ids):
                if slot.key not in before:
                    log.warning(
                        "limit does not hold",
                        device=slot.key,
                        namespace=slot.owner.namespace,
                        pod=slot.owner.name,
                        uid=slot.owner.uid,
                        container=slot.owner.container,
                        reason=found.reason,
                    )
                self._record(
                    slot,
                    LIMIT_NOT_LIVE,
                    f"container {slot.owner.container} uses a GPU without its limit: {found.reason}. Either "
                    "the program is static or not linked with glibc, or it may not read /etc/ld.so.preload "
                    "or /run/cotenant/lib (SELinux): cotenant doctor says what to do",
                )

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

"""Serves the kubelet's device plugin API, as a part of the agent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.classic.device_plugin import DevicePlugin
from cotenant.kube.agent.classic.pod_resources import PodResources
from cotenant.kube.agent.context import NodeContext
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.mps.part import Mps
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.slots.starting import Starting
from cotenant.kube.parts.part import Part

_FIRST_LOOK = 5.0
"""Seconds for which registration waits for the first look at the GPUs, and no longer: until the kubelet knows
the plugin, it starts containers without asking.
"""


class KubeletPlugin(Part):
    """Shares the DevicePlugin."""

    name = "kubelet"

    def __init__(self, context: NodeContext) -> None:
        own, slots = context.settings.agent, context.use(NodeSlots)
        self._cards = context.use(Cards)
        self._looked = self._cards.looks()
        self._clients_per_gpu = own.clients_per_gpu
        starting = Starting(
            context.node,
            context.client,
            context.use(PodResources),
            slots,
            self._cards.by_uuid,
            lambda _: context.cards.context_bytes,
            own.mode,
            started=context.use(Enforcement).started,
        )
        self._plugin = context.share(
            DevicePlugin(Path(own.kubelet), slots, starting, context.cards.simulation, context.use(Mps))
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve())
            tasks.create_task(self._offer())

    def ready(self) -> str | None:
        if self._plugin.registered_since is not None:
            return None
        return "this device plugin is not registered with the kubelet yet"

    async def _serve(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK):
                await self._looked.wait()
        await self._offer_slots()
        await self._plugin.run()
        raise RuntimeError("the device plugin ended")

    async def _offer(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            await self._offer_slots()

    async def _offer_slots(self) -> None:
        if self._cards.sight is not None:
            await self._plugin.offer(self._clients_per_gpu * len(self._cards.sight.cards))

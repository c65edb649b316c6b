"""Removes slots of containers that have ended, as a part of the agent."""

from __future__ import annotations

from cotenant.kube.agent.classic.pod_resources import PodResources
from cotenant.kube.agent.context import NodeContext
from cotenant.kube.agent.slots.cleaning import Cleaning
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.parts.part import Part


class Slots(Part):
    name = "slots"

    def __init__(self, context: NodeContext) -> None:
        self._cleaning = Cleaning(context.use(NodeSlots), context.use(PodResources), context.client)

    async def run(self) -> None:
        await self._cleaning.run()

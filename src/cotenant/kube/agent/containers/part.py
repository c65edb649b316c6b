"""Measures containers after each look at the GPUs, as a part of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.containers.measuring import with_measured
from cotenant.kube.agent.containers.use import ContainerUse
from cotenant.kube.agent.context import NodeContext, own_node, own_pods
from cotenant.kube.agent.node_pods import NodePods, PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import NODES
from cotenant.kube.nodes.gpus import drained_of
from cotenant.kube.parts.part import Part
from cotenant.kube.pods.fields import PodFields
from cotenant.kube.pods.workload import WORKLOAD_FIELDS
from cotenant.kube.settings import Settings
from cotenant.observe.view import View

_FIELDS = WORKLOAD_FIELDS | PodFields(container_ids=True)


class Containers(Part):
    """Shares itself: metrics are made of what it has measured."""

    name = "containers"

    def __init__(self, context: NodeContext) -> None:
        self._pods, self._node = context.use(NodePods), context.informers[NODES].store
        self._name = context.node
        self._cards = context.use(Cards)
        self._looked = self._cards.looks()
        self._use = ContainerUse(context.use(NodeSlots))
        context.share(self)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_node(settings), own_pods(settings, _FIELDS))

    async def run(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            if (sight := self._cards.sight) is not None:
                await asyncio.to_thread(self._use.look, sight, self._pods.now())

    def complete(self, view: View, pods: PodsNow) -> View:
        """Adds what was measured at the last look to a view of the node with these pods."""
        node = self._node.named(self._name)
        drained = frozenset() if node is None else drained_of(node)
        return with_measured(view, self._use.measured, pods, drained)

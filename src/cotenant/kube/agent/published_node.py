"""Publishes the node's GPUs, capacity and condition to the API server, as a part of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.context import NodeContext, own_node, own_pods
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.mps.part import Mps
from cotenant.kube.agent.node_pods import NodePods
from cotenant.kube.agent.publishing import Publisher, Wanted, wanted
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.store import Change
from cotenant.kube.nodes.gpus import drained_of
from cotenant.kube.parts.part import Part
from cotenant.kube.pods.demand import has_ended
from cotenant.kube.settings import Settings


class PublishedNode(Part):
    """Shares the Publisher. It compares after each look at the GPUs, and each change of the node or of what
    its pods request.
    """

    name = "node"

    def __init__(self, context: NodeContext) -> None:
        self._node, self._pods = context.informers[NODES], context.informers[PODS]
        self._node_pods = context.use(NodePods)
        self._dialects, self._version = context.settings.dialects, context.version
        self._mps = context.use(Mps)
        self._resources = frozenset(self._dialects.capacity(()))
        self._cards, self._enforcement = context.use(Cards), context.use(Enforcement)
        self._looked = self._cards.looks()
        store, self._name = self._node.store, context.node
        self._publisher = context.share(
            Publisher(context.client, lambda: store.named(self._name), self._wanted, store.put)
        )
        store.subscribe(lambda _: self._publisher.again())
        self._pods.store.subscribe(self._on_pod)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_node(settings), own_pods(settings))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publisher.run())
            tasks.create_task(self._compare_after_looks())

    def ready(self) -> str | None:
        if self._publisher.current:
            return None
        trouble = self._publisher.trouble or self._node.trouble or self._pods.trouble
        return f"the node's GPUs are not published yet{f': {trouble}' if trouble else ''}"

    def _on_pod(self, change: Change[Pod]) -> None:
        """Most changes of a pod are of its status, and only its end changes what is published."""
        pod, before = change.object, change.before
        same = before is not None and (before.spec, has_ended(before)) == (pod.spec, has_ended(pod))
        if change.kind != "modified" or not same:
            self._publisher.again()

    async def _compare_after_looks(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            self._publisher.again()

    def _wanted(self) -> Wanted | None:
        """None until the GPUs and the node's grants were read once, and the enforcer is chosen."""
        sight, node = self._cards.sight, self._node.store.named(self._name)
        if sight is None or not sight.granted or node is None:
            return None
        if self._enforcement.undecided and self._cards.survey.trouble is None:
            return None
        return wanted(
            sight,
            self._dialects,
            {
                name: amount
                for name, amount in self._node_pods.now().requests.items()
                if name in self._resources
            },
            self._version,
            mps=self._mps.enforces(),
            enforcer=self._enforcement.offered,
            trouble=self._cards.survey.trouble,
            drained=drained_of(node),
        )

"""Reports idle pods to the API server, as a part of the agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.context import NodeContext, own_node, own_pods
from cotenant.kube.agent.idle.activity import ActivityReader
from cotenant.kube.agent.idle.heartbeat import Heartbeat
from cotenant.kube.agent.idle.reporting import IdleReporter
from cotenant.kube.agent.idle.rhythm import Rhythm
from cotenant.kube.agent.idle.verdict import SECOND
from cotenant.kube.agent.node_pods import NodePods
from cotenant.kube.agent.slots.confirming import Confirming
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.parts.part import Part
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import counter
from cotenant.observe.metrics import Metric

_LOOK = 2.0
"""Seconds between two looks at the slots, at most: work is reported that much later."""

_SHARE = 0.001
"""Of a core, that reading the slots may take: with hundreds of them looks come less often."""

_FRESH = 5.0
"""Seconds. An agent that stood still since its look does not vouch for what it saw."""


class IdlePods(Part):
    """Looks at the slots, and writes the condition where it changes. An agent that may not write it is ready
    all the same: GPUs work without it.
    """

    name = "idle"

    def __init__(self, context: NodeContext) -> None:
        own = context.settings.agent
        self._node, self._pods = context.informers[NODES], context.informers[PODS]
        self._cards, self._confirming = context.use(Cards), context.use(Confirming)
        self._node_pods = context.use(NodePods)
        self._activity = ActivityReader(context.use(NodeSlots), time.monotonic_ns())
        written = counter(Metric.AGENT_IDLE_WRITES, context.registry)
        self._reporter = IdleReporter(
            context.client,
            self._pods.store,
            self._pods.resource,
            Rhythm(own.idle),
            wrote=lambda status: written.labels(status).inc(),
        )
        self._heartbeat = Heartbeat(
            context.client, context.settings.namespace, lambda: self._node.store.named(context.node)
        )
        self._shortest, self._longest = min(_LOOK, own.idle / 2), max(own.idle / 2, _LOOK)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_node(settings), own_pods(settings))

    async def run(self) -> None:
        await self._pods.wait_until_synced()
        while True:
            await self.look()
            await asyncio.sleep(min(max(self._shortest, self._activity.took / _SHARE), self._longest))

    async def look(self) -> None:
        """Looks once, and writes what differs. Nothing is written before the first survey of the GPUs: a
        kernel may run that was launched long ago.
        """
        sight = self._cards.sight
        if sight is None:
            return
        pods, now = self._node_pods.now(), time.monotonic_ns()
        activities = await asyncio.to_thread(self._activity.read, pods, sight, self._confirming.unrecorded)
        true = await self._reporter.report(activities, now)
        if true and activities and time.monotonic_ns() - now < _FRESH * SECOND:
            await self._heartbeat.beat()

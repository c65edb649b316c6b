"""Serves the line and evicts for pods of higher priority, as two parts of the server that leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.events import EventRecorder
from cotenant.kube.line.evicting import Preempting
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.measuring import LineMetrics
from cotenant.kube.line.room_finder import RoomFinder
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.nodes.fields import GPU_FIELDS
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import counter, gauge
from cotenant.observe.metrics import Metric


class Line(Part):
    """Shares the LineKeeper."""

    name = "line"
    leader_only = True
    section = ("line", LineSettings)

    def __init__(self, context: Context) -> None:
        pods, nodes = context.informers[PODS].store, context.informers[NODES].store
        self._keeper = context.share(
            LineKeeper(
                context.client,
                context.use(ClusterLedger),
                pods,
                nodes,
                context.settings.dialects,
                context.use(EventRecorder),
                context.section(LineSettings),
                leading=lambda: context.leading.not_serving() is None,
            )
        )
        # Subscribed after the ledger's feed: a change is in the ledger before the line hears of it.
        pods.subscribe(self._keeper.on_pod)
        nodes.subscribe(self._keeper.on_node)
        gauge(Metric.PENDING_PODS, context.registry).set_function(lambda: len(self._keeper))
        LineMetrics(self._keeper, lambda: context.leading.not_serving() is None).register(context.registry)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (Need(PODS, gpu_fields(settings.dialects)), Need(NODES, GPU_FIELDS))

    async def begin(self, term: Term) -> None:
        del term
        self._keeper.refill()

    async def run(self) -> None:
        await self._keeper.run()


class Evicting(Part):
    """Evicts where a node has enough free memory in total but no single GPU has."""

    name = "evicting"
    leader_only = True

    def __init__(self, context: Context) -> None:
        pods, nodes = context.informers[PODS].store, context.informers[NODES].store
        line = context.use(LineKeeper)
        self._preempting = Preempting(
            context.client,
            line,
            RoomFinder(context.use(ClusterLedger), pods, nodes, line),
            context.use(EventRecorder),
            context.leading.must_lead,
            evicted=counter(Metric.EVICTIONS, context.registry).inc,
        )

    async def run(self) -> None:
        await self._preempting.run()

"""Sizes workloads and releases idle ones, as a part of the server that leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import LEASES, NODES, PODS, Resource
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.nodes.agent_reports import AgentReports, agent_leases
from cotenant.kube.nodes.fields import GPU_FIELDS, NodeFields
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.pods.fields import PodFields
from cotenant.kube.scaler.acting import Acting
from cotenant.kube.scaler.clock import SteadyClock
from cotenant.kube.scaler.conflicts import HPAS, AutoscalerFields, Conflicts
from cotenant.kube.scaler.credentials import secrets_of
from cotenant.kube.scaler.demand import Demand, WaitingLine
from cotenant.kube.scaler.measuring import ScalerMetrics
from cotenant.kube.scaler.priorities import PRIORITY_CLASSES, PriorityClassFields, priority_of
from cotenant.kube.scaler.release import Releasing
from cotenant.kube.scaler.removal import COST
from cotenant.kube.scaler.replicas import ReplicaIndex
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.scaler.room import Room
from cotenant.kube.scaler.rounds import Rounds
from cotenant.kube.scaler.scaled import Scaled
from cotenant.kube.scaler.settings import ScalerSettings
from cotenant.kube.scaler.targets import Targets
from cotenant.kube.scaler.workload import WATCHED, Workload, WorkloadFields
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import counter, gauge
from cotenant.observe.metrics import Metric
from cotenant.scaling.sampling import Sources
from cotenant.signals.servers import Servers

log = get_logger(__name__)

_LEAST_PAUSE = 0.2
"""Seconds between two rounds, however long the last one took."""
_CATCH_UP = 5.0
"""Seconds after the API server was away, or a term began, in which agents write what they could not: until
then a pod that is shown as idle may work, and nothing is released by that alone.
"""
_LAST = 5.0
"""Seconds at the end of a term in which what was learned is written."""


class Scaler(Part):
    """Serves GpuScalers, and workloads that have only the annotation."""

    name = "scaler"
    leader_only = True
    section = ("scaler", ScalerSettings)

    def __init__(self, context: Context) -> None:
        self._settings, self._leading = context.section(ScalerSettings), context.leading
        informers, client = context.informers, context.client
        self._pods, self._nodes = informers[PODS], informers[NODES]
        self._scalers = informers[GPU_SCALERS]
        self._watchers: list[Watcher[Any]] = [
            self._scalers,
            informers[HPAS],
            informers[PRIORITY_CLASSES],
            *(informers[each] for each in WATCHED),
        ]
        self._fresh: set[str] = set()
        self._blind_at = time.monotonic()
        self._clock = SteadyClock()
        self._cluster = context.use(ClusterLedger)
        line = context.use(WaitingLine)  # type: ignore[type-abstract]
        recorder, watched = context.use(EventRecorder), [(each, informers[each].store) for each in WATCHED]
        agents = AgentReports(informers[LEASES].store)
        gauge(Metric.AGENTS_SILENT, context.registry).set_function(agents.count_silent)
        index = ReplicaIndex(self._pods.store, agents.gone, agents.silent)
        self._demand = Demand(self._cluster, line, self._pods.store)
        self._conflicts = Conflicts(client, informers[HPAS].store)
        self._servers = Servers(loopback=self._settings.allow_loopback)
        targets = Targets(client, watched, context.leading.must_lead, self._is_fresh)
        acting = Acting(client, targets, line, recorder, context.leading.must_lead, self._clock)
        acting.scalers = lambda: len(self._scalers.store)
        self._rounds = Rounds(
            self._scalers.store,
            targets,
            index,
            self._conflicts,
            acting,
            context.settings.dialects,
            lambda: Room(self._cluster, self._nodes.store),
            lambda name: priority_of(informers[PRIORITY_CLASSES].store, name),
            self._open,
            self._settings.poll,
            self._clock,
        )
        self._rounds.sees = self._sees
        self._client = client
        self._metrics = ScalerMetrics(context.registry)
        self._releasing = Releasing(
            client,
            watched,
            index,
            recorder,
            context.leading.must_lead,
            scaled_by=self._scaled_by,
            released=counter(Metric.RELEASES, context.registry).inc,
        )

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        fields = WorkloadFields(settings.dialects)
        return (
            Need(PODS, PodFields(annotations=frozenset({COST}), replicas=True)),
            Need(NODES, GPU_FIELDS | NodeFields(gpu_node_labels=True)),
            agent_leases(settings.namespace),
            Need(GPU_SCALERS),
            Need(HPAS, AutoscalerFields()),
            Need(PRIORITY_CLASSES, PriorityClassFields()),
            *(Need(each, fields) for each in WATCHED),
        )

    async def begin(self, term: Term) -> None:
        """Forgets what was read before the term; `run` reads it again. Nothing is awaited: pods must be bound
        also where a kind that the scaler watches cannot be listed.
        """
        del term
        self._fresh.clear()
        self._blind_at = time.monotonic()
        self._rounds.begin()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in self._watchers:
                    tasks.create_task(self._read(each))
                tasks.create_task(self._conflicts.run())
                tasks.create_task(self._go_on())
        finally:
            await self._rounds.close(_LAST)
            self._metrics.clear()

    def ready(self) -> str | None:
        for each in self._watchers:
            if each.trouble is not None:
                return f"{each.resource.plural}: {each.trouble}"
        return None

    async def _read(self, watcher: Watcher[Any]) -> None:
        """Lists a kind anew: no decision is made by what was read before the term."""
        await watcher.relist()
        self._fresh.add(watcher.resource.plural)

    async def _go_on(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._round()
            except Exception:  # whatever it is, the server must not end by it
                log.exception("round of the scaler failed")
            took = time.monotonic() - began
            self._metrics.took(took)
            await asyncio.sleep(max(_LEAST_PAUSE, self._settings.poll - took))

    async def _round(self) -> None:
        """Looks at all, asks the line for whom somebody waits, and acts."""
        if self._pods.trouble is not None:
            self._blind_at = time.monotonic()
        if self._leading.not_serving() is not None or self._pods.trouble is not None:
            return
        self._conflicts.look()
        served = self._is_fresh(GPU_SCALERS) and self._is_fresh(HPAS)
        considered = await self._rounds.look() if served else []
        now = self._clock.no_later()
        idle = [each for each in self._releasing.releasable(now) if self._is_fresh(each.resource)]
        holders = [*self._rounds.holders(considered), *(each.holder(now) for each in idle)]
        wanted = self._demand.wanted(holders)
        await self._rounds.act(considered, wanted)
        for each in idle if served and self._sees() else ():
            wanted_by = wanted.get(each.workload.metadata.uid)
            if self._releasing.due(each, now, wanted_by):
                await self._releasing.release(each, now, wanted_by)
        await self._releasing.bring_back()
        self._metrics.show(self._rounds.known)

    def _sees(self) -> bool:
        return time.monotonic() - self._blind_at >= _CATCH_UP

    def _is_fresh(self, resource: Resource[Any]) -> bool:
        """Reports whether a kind was listed in this term and its watch goes on."""
        watcher = next(each for each in self._watchers if each.resource.plural == resource.plural)
        return resource.plural in self._fresh and watcher.trouble is None

    def _scaled_by(self, resource: Resource[Workload], workload: Workload) -> str | None:
        meta = workload.metadata
        return self._rounds.scaled_by((meta.namespace, resource.group, resource.kind, meta.name))

    def _open(self, one: Scaled) -> Sources:
        assert one.spec is not None  # noqa: S101
        return Sources(one.spec, secrets_of(self._client, one.scaler.metadata.namespace), self._servers)

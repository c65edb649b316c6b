"""Keeps the cluster's ledger in memory, what was learned over restarts, and binds pods: parts of the server.

Every server feeds its ledger from the API server's watches. A term begins with lists that are newer than the
lease, so that everything the leader before did is in the ledger before the first question is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.kube.api.errors import Forbidden, KubeError, Undecodable
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.binding.binder import WITHIN, Binder, BinderLine
from cotenant.kube.binding.counting import running
from cotenant.kube.binding.fencing import NotChanged, fence_all
from cotenant.kube.binding.ledger_feed import LedgerFeed
from cotenant.kube.binding.statistics_keeper import StatisticsKeeper
from cotenant.kube.binding.statistics_map import NotStatistics, read_statistics, write_statistics
from cotenant.kube.logs import get_logger
from cotenant.kube.nodes.fields import GPU_FIELDS
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.pods.demand import has_ended, holds_slot
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.pod_statistics import EndedPods
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import gauge
from cotenant.observe.metrics import Metric

log = get_logger(__name__)


class LedgerPart(Part):
    """Shares the ClusterLedger and its LedgerFeed."""

    name = "ledger"
    counts_for_readiness = False

    def __init__(self, context: Context) -> None:
        self._client, self._leading = context.client, context.leading
        self._dialects = context.settings.dialects
        self._pods, self._nodes = context.informers[PODS], context.informers[NODES]
        self._cluster = context.share(ClusterLedger())
        self._feed = context.share(
            LedgerFeed(self._pods.store, self._nodes.store, self._cluster, context.settings.dialects)
        )
        self._namespace = context.settings.namespace
        self._fencing: str | None = None
        gauge(Metric.CHARGED_PODS, context.registry).set_function(lambda: len(self._cluster.pods))

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (Need(PODS, gpu_fields(settings.dialects)), Need(NODES, GPU_FIELDS))

    async def begin(self, term: Term) -> None:
        ended = await self._ended()
        unseen = self._feed.unseen()
        await asyncio.gather(self._pods.relist(), self._nodes.relist())
        self._feed.forget_unseen(unseen)
        if term.inherited:
            await self._fence(term)
            if not self._leading.leads(term):
                raise CotenantError("the lease was lost before all pods were fenced")
        running_now = running(self._pods.store, self._cluster, self._dialects)
        self._feed.statistics.begin(ended, running_now)
        log.info(
            "term begins", term=term.number, nodes=len(self._nodes.store), charged=len(self._cluster.pods)
        )

    async def run(self) -> None:
        await self._feed.recount(self._pods.relist)

    def in_doubt(self) -> bool:
        there = (self._pods.store.get(uid) for uid in self._feed.unfenced)
        return any(pod is not None and self._feed.is_unfenced(pod) for pod in there)

    def ready(self) -> str | None:
        for each in (self._pods, self._nodes):
            if each.trouble is not None or not each.synced:
                return f"{each.resource.plural}: {each.trouble or 'not listed yet'}"
        return self._fencing

    async def _fence(self, term: Term) -> None:
        """Invalidates Bindings of the leader before, which may arrive after our list: it did not release the
        lease.
        """
        unbound = [
            pod
            for pod in self._pods.store
            if not pod.spec.node_name and not has_ended(pod) and holds_slot(pod)
        ]
        log.info("fencing pods that are not bound", term=term.number, pods=len(unbound))
        try:
            await fence_all(
                self._client, unbound, self._fenced, lambda: self._leading.leads(term), self._report
            )
        finally:
            self._fencing = None

    def _fenced(self, uid: str, now: Pod | None, refused: NotChanged | None) -> None:
        if now is not None:
            self._feed.load(now)
        self._feed.fenced(uid, refused)

    def _report(self, left: int, error: KubeError | None) -> None:
        self._fencing = f"{left} pods that wait are not fenced yet: {error}" if left else None

    async def _ended(self) -> EndedPods:
        """Reads what is kept of pods that have ended. This comes before the list of pods: whatever the leader
        before writes later, it is not both in what was read and among those that run.
        """
        try:
            kept = await read_statistics(self._client, self._namespace)
        except (NotStatistics, Forbidden, Undecodable) as error:
            log.warning("statistics of ended pods cannot be read: they begin anew", error=str(error))
            kept = None
        return kept or EndedPods()


class Learning(Part):
    """Writes the statistics of ended pods for the next leader."""

    name = "learning"
    leader_only = True

    def __init__(self, context: Context) -> None:
        self._client, self._namespace = context.client, context.settings.namespace
        self._statistics = context.use(LedgerFeed).statistics
        self._leading = context.leading

    async def run(self) -> None:
        await StatisticsKeeper(self._statistics, self._write, self._may_write).run()

    async def _write(self, ended: EndedPods) -> None:
        if await write_statistics(self._client, self._namespace, ended, self._may_write):
            log.info("statistics of ended pods written", pods=ended.pods, kinds=len(ended.seen.counts))

    def _may_write(self) -> None:
        self._leading.must_lead(WITHIN)


class Binding(Part):
    """Shares the Binder."""

    name = "binding"

    def __init__(self, context: Context) -> None:
        self._binder = context.share(
            Binder(
                context.client,
                context.use(LedgerFeed),
                context.use(BinderLine),  # type: ignore[type-abstract]
                context.settings.dialects,
                context.leading.must_lead,
            )
        )

    def in_doubt(self) -> bool:
        return self._binder.in_doubt()

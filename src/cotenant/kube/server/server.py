"""The server: webhook on every replica; ledger, extender and line where it leads.

Every replica keeps its caches warm. A term begins with a list that is newer than the lease, so that whatever
the leader before did is in the ledger before the first question is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from random import Random

from aiohttp import web

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.placement import typical_of
from cotenant.kube.admission import configuration
from cotenant.kube.admission.serving import webhook_app, webhook_runner
from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client
from cotenant.kube.api.election import Election, LeaseSettings
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.store import Change
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.binding.binder import WITHIN, Binder
from cotenant.kube.binding.fencing import fence_all
from cotenant.kube.binding.ledger_feed import LedgerFeed
from cotenant.kube.certificates.keeper import CertificateKeeper
from cotenant.kube.events import EventRecorder
from cotenant.kube.extender.deciding import Decider
from cotenant.kube.extender.endpoint import publish
from cotenant.kube.extender.fast_http import FastHttp
from cotenant.kube.extender.serving import LARGEST_BODY, Extender
from cotenant.kube.extender.state import state
from cotenant.kube.line.evicting import Preempting
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.room_finder import RoomFinder
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.demand import demand_of, has_ended, holds_slot
from cotenant.kube.pods.kept_fields import kept_of
from cotenant.kube.pods.slots import PodDemand
from cotenant.kube.request_errors import server_log
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.settings import Settings
from cotenant.observe.endpoints import endpoints
from cotenant.observe.exposition import Registry, counter, gauge, text_of
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

REMEMBERED = 1000
"""Demands served last, by which fragmentation is measured."""
LEARN_EVERY = 100


@dataclass
class History:
    """Which demands are typical of this cluster."""

    cluster: ClusterLedger
    _last: deque[Demand] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _new: int = 0

    def add(self, demand: PodDemand) -> None:
        self._last.extend(slot.demand for slot in demand.slots)
        self._new += 1
        if self._new >= LEARN_EVERY:
            self.learn()

    def learn(self) -> None:
        self._new = 0
        self.cluster.typical = typical_of(self._last)


@dataclass
class Server:
    """`run()` serves until it is cancelled."""

    settings: Settings
    client: Client
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    registry: Registry = field(default_factory=Registry)

    def __post_init__(self) -> None:
        settings, client, dialects = self.settings, self.client, self.settings.dialects
        self.address = _own_address(settings, self.environ)
        self.pods: Watcher[Pod] = Watcher(client, replace(PODS, keep=kept_of(dialects)))
        self.nodes: Watcher[Node] = Watcher(client, NODES)
        self.election = Election(
            client,
            LeaseSettings(
                settings.leader.lease, settings.namespace, duration=round(settings.leader.duration)
            ),
        )
        self.cluster = ClusterLedger()
        self.history = History(self.cluster)
        self.teller = EventRecorder(client)
        self.line = LineKeeper(
            client,
            self.cluster,
            self.pods.store,
            self.nodes.store,
            dialects,
            self.teller,
            settings.line,
            leading=lambda: self.not_ready() is None,
        )
        self.keeper = LedgerFeed(self.pods.store, self.nodes.store, self.cluster, self._on_pod)
        self.nodes.store.subscribe(lambda _: self.line.moved())
        self.binder = Binder(
            client, self.keeper, self.line, dialects, self.election.must_lead, bound=self.history.add
        )
        finder = RoomFinder(self.cluster, self.pods.store, self.nodes.store, self.line)
        self.preempting = Preempting(client, self.line, finder, self.teller, self.election.must_lead)
        decider = Decider(self.cluster, self.pods.store, self.nodes.store, dialects, self.line)
        self.extender = Extender(decider, self.binder, self.not_ready, self.registry)
        self.certificates = CertificateKeeper(client, settings, configuration.NAME)
        self._term: int | None = None
        self._measure()

    def not_ready(self) -> str | None:
        """Why the extender must not answer now."""
        if not self.election.leading():
            return f"this server does not lead: {self.election.holder or 'nobody'} does"
        if self._term != self.election.term:
            return "this server leads and has not yet read the cluster's grants"
        return None

    async def run(self) -> None:
        election = asyncio.create_task(self.election.run())
        stop = AsyncExitStack()
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    self.pods.run(),
                    self.nodes.run(),
                    self.certificates.run(),
                    self.teller.run(),
                    self.line.run(),
                    self.preempting.run(),
                    self.keeper.recount(self.pods.relist),
                    self._lead(),
                    _never_ends(election),
                ):
                    tasks.create_task(work)
                await self._listen(stop)
        finally:
            await stop.aclose()
            election.cancel()  # last of all: what acts as leader has stopped
            await asyncio.wait([election])

    async def _listen(self, stop: AsyncExitStack) -> None:
        await self.certificates.wait_until_ready()
        routes = endpoints(ready=self._ready, metrics=self._metrics, state=self._state)
        app = webhook_app(self.settings, self.settings.dialects, self.registry, routes)
        webhook = webhook_runner(app)
        others = web.AppRunner(
            self.extender.app(), access_log=None, keepalive_timeout=150.0, logger=server_log()
        )
        for runner in (webhook, others):
            await runner.setup()
            stop.push_async_callback(runner.cleanup)
        assert others.server is not None  # noqa: S101 - after its setup it has one
        front = FastHttp(self.extender.verbs(), others.server, LARGEST_BODY)
        stop.push_async_callback(front.close, WITHIN)
        address = self.settings.server.address or None
        plain = address is not None and ip_address(address).is_loopback
        serving = self.certificates.server_context(client_certificates=False)
        site = web.TCPSite(webhook, address, self.settings.webhook.port, ssl_context=serving, backlog=1024)
        await _listening(self.settings.webhook.port, site.start())
        port = self.settings.extender.port
        await _listening(port, front.listen(address, port, None if plain else self._mutual()))
        log.info("listening", address=self.address)

    def _ready(self) -> dict[str, str | None]:
        missing = "this server has no certificate yet"
        return {"certificates": None if self.certificates.ready else missing}

    async def _metrics(self) -> bytes:
        return text_of(self.registry)

    async def _state(self) -> bytes:
        """Ledger and line, for those who compare them with what the API server has."""
        return state(self.cluster, self.line.uids(), leads=self.not_ready() is None)

    def _mutual(self) -> ssl.SSLContext:
        return self.certificates.server_context(client_certificates=True)

    async def _lead(self) -> None:
        while True:
            term = await self.election.wait_until_leading()
            unseen = self.keeper.unseen()
            await asyncio.gather(self.pods.relist(), self.nodes.relist())
            self.keeper.forget_unseen(unseen)
            if self.election.inherited:
                await self._fence(term)
            self._remember()
            self.line.refill()
            self._term = term
            gc.collect()
            gc.freeze()  # what has been read stays: no collection need look at it again
            log.info(
                "term begins", term=term, nodes=len(self.nodes.store), charged_pods=len(self.cluster.pods)
            )
            await self._publish(term)
            await self.election.wait_until_over(term)
            log.warning("term is over", term=term)

    async def _publish(self, term: int) -> None:
        """The way to us, however often it must be tried."""
        backoff = Backoff(0.2, 5.0, Random())
        while not ip_address(self.address).is_loopback and self._leads(term):
            try:
                await publish(self.client, self.settings, self.address)
            except KubeError as error:
                log.warning("endpoints not published", term=term, error=error)
                await asyncio.sleep(backoff.next(error.retry_after))
            else:
                return

    def _leads(self, term: int) -> bool:
        return self.election.leading() and self.election.term == term

    async def _fence(self, term: int) -> None:
        """The leader before did not say goodbye: what it sent last may arrive after our list."""
        unbound = [
            pod
            for pod in self.pods.store
            if not pod.spec.node_name and not has_ended(pod) and holds_slot(pod)
        ]
        log.info("fencing pods that are not bound", term=term, pods=len(unbound))
        await fence_all(self.client, unbound, self.binder.load, lambda: self._leads(term))

    def _remember(self) -> None:
        """What runs is typical, until more is known."""
        for uid in list(self.cluster.pods)[:REMEMBERED]:
            pod = self.pods.store.get(uid)
            if pod is not None:
                try:
                    self.history.add(demand_of(pod, self.settings.dialects))
                except BadInput:
                    continue
        self.history.learn()

    def _on_pod(self, change: Change[Pod]) -> None:
        self.line.on_pod(change)
        if change.kind == "deleted":
            self.teller.forget(change.object.metadata.uid)

    def _measure(self) -> None:
        gauge(Metric.PENDING_PODS, self.registry).set_function(lambda: len(self.line))
        gauge(Metric.LEADER, self.registry).set_function(lambda: self.not_ready() is None)
        gauge(Metric.CHARGED_PODS, self.registry).set_function(lambda: len(self.cluster.pods))
        self.preempting.evicted = counter(Metric.EVICTIONS, self.registry).inc


def _own_address(settings: Settings, environ: Mapping[str, str]) -> str:
    address = settings.server.address or environ.get("POD_IP", "")
    with contextlib.suppress(ValueError):
        own = ip_address(address)
        if not own.is_unspecified:
            return str(own)
    raise BadInput(
        f"server.address: {address!r} is not an IP address of this server: others must know where it is: set "
        "it, or POD_IP in the environment"
    )


async def _listening(port: int, start: Awaitable[object]) -> None:
    try:
        await start
    except OSError as error:
        raise CotenantError(f"port {port}: it cannot be listened on: {error.strerror}") from None


async def _never_ends(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
    raise RuntimeError("the election has ended")


async def serve(settings: Settings, access: Access) -> None:
    """Until it is cancelled."""
    gc.set_threshold(20_000, 20, 100)  # most of what is made lives for one question, and is in no cycle
    async with Client(access) as client:
        await Server(settings, client).run()

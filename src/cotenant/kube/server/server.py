"""Composes a server from its parts: all of them on every replica, the leader's where it leads."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.client import Client
from cotenant.kube.api.election import Election, LeaseSettings
from cotenant.kube.api.informers import Informers
from cotenant.kube.binding.learned_view import view_learned
from cotenant.kube.binding.ledger_feed import LedgerFeed
from cotenant.kube.certificates.keeper import CertificateKeeper
from cotenant.kube.extender.state import state_in_pieces
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.leadership import Leadership
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.parts.running import LINGER, Failures, PartFailed, run_all
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.server.listener import listening
from cotenant.kube.server.parts import PARTS
from cotenant.kube.settings import Settings
from cotenant.observe.endpoints import endpoints
from cotenant.observe.exposition import Registry, gauge, text_of
from cotenant.observe.metrics import Metric
from cotenant.observe.state import LONGEST_REASON

log = get_logger(__name__)


class Server:
    """`run()` serves until it is cancelled, or raises PartFailed."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        environ: Mapping[str, str] = os.environ,
        kinds: Sequence[type[Part]] = PARTS,
    ) -> None:
        self._settings = settings
        self._registry = Registry()
        self._failures = Failures(self._registry)
        lease = LeaseSettings(
            settings.leader.lease, settings.namespace, duration=round(settings.leader.duration)
        )
        self.election = Election(client, lease)
        self.leadership = Leadership(self.election, self._failures, begun=self._begun)
        self._informers = Informers(client, [need for kind in kinds for need in kind.needs(settings)])
        self.context = Context(settings, client, self._informers, self.leadership, self._registry, environ)
        self.parts = [kind(self.context) for kind in kinds]
        self.leadership.parts = self.parts
        self._listens = False
        self._measure()

    async def run(self) -> None:
        """Ends in this order: parts, the lease, the listener. The lease is released when nothing acts as
        leader any more; the listener reports until the last moment which part has failed.
        """
        election = asyncio.create_task(self.election.run())
        async with AsyncExitStack() as stop:
            try:
                await run_all(
                    [
                        *((f"watch of {each.resource.plural}", each.run()) for each in self._informers),
                        *((part.name, part.run()) for part in self.parts if not part.leader_only),
                        ("election", _lasting(election)),
                        ("leadership", self.leadership.run()),
                        ("listener", self._listen(stop)),
                    ],
                    self._failures.note,
                )
            except PartFailed:
                self._keep_lease_if_in_doubt()
                await _ended(election)
                if self._listens:
                    await asyncio.sleep(LINGER)
                raise
            finally:
                self._keep_lease_if_in_doubt()
                await _ended(election)

    def _keep_lease_if_in_doubt(self) -> None:
        if any(part.in_doubt() for part in self.parts):
            self.election.withdraw(self._settings.leader.duration)

    def ready(self) -> dict[str, str | None]:
        """Says of each part that works on every server why it is not ready, if it is not."""
        counting = [part for part in self.parts if part.counts_for_readiness and not part.leader_only]
        return {part.name: part.ready() for part in counting} | self._failures.why

    def leader_ready(self) -> dict[str, str | None]:
        """Says the same of the leader's parts, and of a term that cannot begin. It does not count for the
        readiness of the webhook, which needs no leader.
        """
        serves = self.leadership.not_serving() is None
        shown = [
            part
            for part in self.parts
            if (part.leader_only and serves) or not (part.leader_only or part.counts_for_readiness)
        ]
        known = {part.name: part.ready() for part in shown}
        waiting = self.leadership.waiting()
        pending = {f"term {self.election.term}": waiting} if waiting is not None else {}
        return known | self._failures.in_term | pending

    async def _listen(self, stop: AsyncExitStack) -> None:
        certificates = self.context.use(CertificateKeeper)
        await certificates.wait_until_ready()
        routes = [
            *endpoints(ready=self.ready, also=self.leader_ready, metrics=self._metrics, state=self._state),
            *(route for part in self.parts for route in part.routes()),
        ]
        address, port = self._settings.server.address or None, self._settings.webhook.port
        tls = certificates.server_context(client_certificates=False)
        await stop.enter_async_context(listening(address, port, tls, routes))
        self._listens = True
        log.info("listening", port=port)
        await asyncio.Event().wait()

    async def _metrics(self) -> bytes:
        return text_of(self._registry)

    async def _state(self) -> bytes:
        serving = self.leadership.not_serving() is None
        cluster, line = self.context.use(ClusterLedger), self.context.use(LineKeeper)
        pieces = list[bytes]()
        waits = {
            name: why[:LONGEST_REASON]
            for name, why in self.leader_ready().items()
            if serving and why is not None
        }
        learned = view_learned(cluster.learned, self.context.use(LedgerFeed).statistics) if serving else None
        term = self.leadership.state()
        for piece in state_in_pieces(cluster, line.uids(), term, waits, learned, leads=serving):
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    def _begun(self, term: Term) -> None:
        del term
        gc.collect()
        gc.freeze()  # what has been read stays: no collection need look at it again

    def _measure(self) -> None:
        for part in self.parts:
            self._failures.expect(part)
        leader = gauge(Metric.LEADER, self._registry)
        leader.set_function(lambda: self.leadership.not_serving() is None)
        gauge(Metric.TERM_PENDING, self._registry).set_function(self.leadership.waiting_seconds)


async def _lasting(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def serve(settings: Settings, access: Access) -> None:
    """Serves until it is cancelled."""
    gc.set_threshold(20_000, 20, 100)  # most of what is made lives for one question, and is in no cycle
    async with Client(access) as client:
        await Server(settings, client).run()

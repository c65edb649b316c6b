"""Answers kube-scheduler, and leads it to the server that leads, as two parts of the server."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from random import Random

from aiohttp import web

from cotenant.core.errors import CotenantError
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.certificates.keeper import CertificateKeeper
from cotenant.kube.extender.address import own_address
from cotenant.kube.extender.deciding import Decider, ExtenderLine
from cotenant.kube.extender.endpoint import publish
from cotenant.kube.extender.fast_http import FastHttp
from cotenant.kube.extender.serving import LARGEST_BODY, Extender, PodBinder
from cotenant.kube.extender.settings import ExtenderSettings
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.request_errors import server_log
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

log = get_logger(__name__)

KEEP_ALIVE = 150.0
"""Seconds; longer than kube-scheduler keeps an idle connection, so that it never meets one that we close."""


LOOK = 2.0
"""Seconds between two looks at the leader's endpoint: what somebody else wrote or deleted is put right."""


class Scheduler(Part):
    """Listens on every server, and answers only where it leads and its ledger is complete."""

    name = "extender"
    section = ("extender", ExtenderSettings)

    def __init__(self, context: Context) -> None:
        settings, cluster = context.settings, context.use(ClusterLedger)
        own = context.section(ExtenderSettings)
        cluster.learned.spread = not own.pods_without_gpu
        pods, nodes = context.informers[PODS].store, context.informers[NODES].store
        line = context.use(ExtenderLine)  # type: ignore[type-abstract]
        decider = Decider(cluster, pods, nodes, settings.dialects, line)
        self._binder = context.use(PodBinder)  # type: ignore[type-abstract]
        self._extender = Extender(decider, self._binder, context.leading.not_serving, context.registry)
        self._certificates = context.use(CertificateKeeper)
        self._address = settings.server.address or None
        self._port = own.port
        self._listens = False

    async def run(self) -> None:
        """Listens until it is cancelled; then answers that are being given are given first."""
        await self._certificates.wait_until_ready()
        others = web.AppRunner(
            self._extender.app(), access_log=None, keepalive_timeout=KEEP_ALIVE, logger=server_log()
        )
        await others.setup()
        assert others.server is not None  # noqa: S101 - after its setup it has one
        front = FastHttp(self._extender.verbs(), others.server, LARGEST_BODY)
        plain = self._address is not None and ip_address(self._address).is_loopback
        tls = None if plain else self._certificates.server_context(client_certificates=True)
        try:
            await front.listen(self._address, self._port, tls)
            self._listens = True
            await asyncio.Event().wait()
        except OSError as error:
            raise CotenantError(f"port {self._port}: it cannot be listened on: {error.strerror}") from None
        finally:
            self._listens = False
            await front.close(self._binder.within)
            await others.cleanup()

    def ready(self) -> str | None:
        return None if self._listens else f"port {self._port} is not listened on yet"


class LeaderEndpoint(Part):
    """Writes the leader's address into the EndpointSlice of the extender's Service."""

    name = "endpoint"
    leader_only = True

    def __init__(self, context: Context) -> None:
        self._client, self._settings = context.client, context.settings
        self._address = own_address(context.settings, context.environ)
        self._leading = context.leading
        self._trouble: str | None = None

    async def begin(self, term: Term) -> None:
        del term
        if not ip_address(self._address).is_loopback:
            self._trouble = "it is not written yet"

    async def run(self) -> None:
        """Writes it at once, and again whenever it is not as it should be."""
        backoff = Backoff(0.2, 5.0, Random())
        while not ip_address(self._address).is_loopback:
            pause = LOOK
            try:
                written = await publish(self._client, self._settings, self._address, self._leading.must_lead)
            except CotenantError as error:
                self._trouble = str(error)
                log.warning("endpoint not written", error=str(error))
                pause = backoff.next(error.retry_after if isinstance(error, KubeError) else None)
            else:
                if written:
                    log.info("endpoint written", address=self._address)
                self._trouble = None
                backoff.reset()
            await asyncio.sleep(pause)
        await asyncio.Event().wait()

    def ready(self) -> str | None:
        return self._trouble

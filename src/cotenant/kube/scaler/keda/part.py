"""Serves KEDA's external scaler, and gives KEDA the CA bundle that verifies it, as a part of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.informers import Need
from cotenant.kube.certificates.distribution import publish_bundle
from cotenant.kube.certificates.keeper import CertificateKeeper
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Context, Part
from cotenant.kube.scaler.keda.figures import Figures
from cotenant.kube.scaler.keda.settings import KedaSettings
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import counter
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

LOOK = 10.0
"""Seconds between two looks at the bundle in KEDA's namespace; one that was deleted is written again."""


class Keda(Part):
    """Listens on every server: any of them can report what was decided. Where it is not enabled, nothing is
    watched and nothing listens.
    """

    name = "keda"
    counts_for_readiness = False
    section = ("keda", KedaSettings)

    def __init__(self, context: Context) -> None:
        self._own = context.section(KedaSettings)
        self._client, self._address = context.client, context.settings.server.address
        self._home = context.settings.namespace
        self._certificates = context.use(CertificateKeeper)
        self._trouble: str | None = None
        self._listens = not self._own.enabled
        if self._own.enabled:
            self._figures = Figures(context.informers[GPU_SCALERS], context.leading.led)
            self._answers = counter(Metric.KEDA_ANSWERS, context.registry)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (Need(GPU_SCALERS),) if settings.keda.enabled else ()

    async def run(self) -> None:
        """Serves until it is cancelled; then streams end first, so that KEDA soon goes to another server."""
        if not self._own.enabled:
            await asyncio.Event().wait()
        # gRPC takes 10 MiB: only where KEDA is answered.
        from cotenant.kube.scaler.keda.external_scaler import ExternalScaler
        from cotenant.kube.scaler.keda.serving import listening

        scaler = ExternalScaler(self._figures, self._answers)
        await self._certificates.wait_until_ready()
        async with listening(self._address, self._own.port, self._serving, scaler.handler()):
            self._listens = True
            log.info("listening for KEDA", port=self._own.port)
            try:
                await self._publish_forever()
            finally:
                scaler.end_streams()

    async def _publish_forever(self) -> None:
        while self._own.namespace not in {"", self._home}:
            try:
                await publish_bundle(self._client, self._own.namespace, self._certificates.ca_bundle)
            except KubeError as error:
                if self._trouble is None:
                    log.warning("CA bundle not written", namespace=self._own.namespace, error=str(error))
                self._trouble = f"the CA bundle in KEDA's namespace {self._own.namespace}: {error}"
            else:
                self._trouble = None
            await asyncio.sleep(LOOK)
        await asyncio.Event().wait()

    def _serving(self) -> KeyPair:
        return self._certificates.serving

    def ready(self) -> str | None:
        return self._trouble if self._listens else f"port {self._own.port} is not listened on yet"

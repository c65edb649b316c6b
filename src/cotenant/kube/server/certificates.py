"""Keeps the certificates of the server's listeners valid, and the webhook's CA bundle in step with them."""

from __future__ import annotations

from cotenant.kube.admission import configuration
from cotenant.kube.certificates.keeper import CertificateKeeper
from cotenant.kube.parts.part import Context, Part


class Certificates(Part):
    """Shares the CertificateKeeper: listeners take their TLS contexts from it."""

    name = "certificates"

    def __init__(self, context: Context) -> None:
        self._keeper = context.share(CertificateKeeper(context.client, context.settings, configuration.NAME))

    async def run(self) -> None:
        await self._keeper.run()

    def ready(self) -> str | None:
        if self._keeper.ready:
            return None
        return str(self._keeper.trouble or "no valid certificate is served yet")

"""Serves the certificate that the server issued for agents, and reloads it when it is renewed.

The server writes it into the Secret `cotenant-agent-certificate`, which the DaemonSet mounts. Until it is
there, a self-signed certificate is served: it encrypts, but a scraper cannot verify it.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cotenant.kube.agent.context import NodeContext
from cotenant.kube.api.auth.credential_file import READ_AGAIN, CredentialFile
from cotenant.kube.api.auth.tls import NotAKeyPair
from cotenant.kube.api.errors import NoCredential
from cotenant.kube.certificates.distribution import AGENT_CERTIFICATE, AGENT_KEY
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.certificates.live_context import LiveContext
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Part

log = get_logger(__name__)

_LIFETIME = timedelta(days=3650)
"""Of a self-signed certificate: nobody verifies it, so nobody renews it."""


class ServingCertificate(Part):
    """Shares itself: the listener takes its TLS context from it."""

    name = "certificate"

    def __init__(self, context: NodeContext) -> None:
        folder = Path(context.settings.agent.certificate)
        self._certificate, self._key = (
            CredentialFile("agent.certificate", path=folder / name) for name in (AGENT_CERTIFICATE, AGENT_KEY)
        )
        self._node = context.node
        self._live = LiveContext()
        self._served: KeyPair | None = None
        self._problem = ""
        self.reload()
        context.share(self)

    def server_context(self) -> ssl.SSLContext:
        """Returns the listener's context: always the same object, which serves the newest certificate."""
        if self._served is None:
            self._live.serve(_self_signed(self._node))
        return self._live.context(client_certificates=False)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(READ_AGAIN)
            self.reload()

    def reload(self) -> None:
        """Serves what the files hold, if it is new. Files that do not belong together change nothing: the
        kubelet is replacing them, and the next reload reads both anew.
        """
        for file in (self._certificate, self._key):
            file.forget()
        try:
            pair = KeyPair(self._certificate.read(), self._key.read())
            if pair == self._served:
                return
            self._live.serve(pair)
        except (NoCredential, NotAKeyPair) as error:
            self._keep(str(error))
            return
        self._served, self._problem = pair, ""
        log.info("serving certificate", file=self._certificate.path)

    def _keep(self, problem: str) -> None:
        if problem != self._problem:
            log.warning(
                "no certificate of the server: scrapers cannot verify this agent"
                if self._served is None
                else "new certificate not loaded: the last one is served",
                problem=problem,
            )
        self._problem = problem


def _self_signed(node: str) -> KeyPair:
    from cotenant.kube.certificates import certificates  # few agents need it: see key_pair.py

    return certificates.issue_self_signed("cotenant-agent", [node], datetime.now(UTC), _LIFETIME)

"""Serves the agent's endpoints: plain HTTP on a loopback address, else TLS with a certificate made at start.

Nothing that is served is secret, and nothing can be changed through it. The certificate only keeps values
from being read on the way; a scraper cannot verify it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from aiohttp import web

from cotenant.core.errors import CotenantError
from cotenant.kube.certificates.certificates import issue_self_signed
from cotenant.kube.certificates.live_context import server_context

_LIFETIME = timedelta(days=3650)


@asynccontextmanager
async def serving(
    address: str,
    port: int,
    name: str,
    routes: Iterable[web.RouteDef],
) -> AsyncIterator[str]:
    """Serves these routes until the block ends; yields the URL."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        tls = None if is_loopback(address) else self_signed(name)
        try:
            await web.TCPSite(runner, address or None, port, ssl_context=tls).start()
        except OSError as error:
            raise CotenantError(
                f"agent.address, agent.port: cannot listen on {address or 'all addresses'}, port {port}: "
                f"{error.strerror or error}"
            ) from None
        yield f"{'https' if tls else 'http'}://{address or name}:{port}"
    finally:
        await runner.cleanup()


def is_loopback(address: str) -> bool:
    return bool(address) and ip_address(address).is_loopback


def self_signed(name: str) -> ssl.SSLContext:
    """Makes a context with a new self-signed certificate, whose key never leaves this process."""
    return server_context(issue_self_signed("cotenant-agent", [name], datetime.now(UTC), _LIFETIME))

"""Serves the agent's endpoints: plain HTTP on a loopback address, else TLS.

Nothing that is served is secret, and nothing can be changed through it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from ipaddress import ip_address

from aiohttp import web

from cotenant.core.errors import CotenantError


@asynccontextmanager
async def serving(
    address: str,
    port: int,
    name: str,
    routes: Iterable[web.RouteDef],
    tls: Callable[[], ssl.SSLContext],
) -> AsyncIterator[str]:
    """Serves these routes until the block ends; yields the URL."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        context = None if is_loopback(address) else tls()
        try:
            await web.TCPSite(runner, address or None, port, ssl_context=context).start()
        except OSError as error:
            raise CotenantError(
                f"agent.address, agent.port: cannot listen on {address or 'all addresses'}, port {port}: "
                f"{error.strerror or error}"
            ) from None
        yield f"{'https' if context else 'http'}://{address or name}:{port}"
    finally:
        await runner.cleanup()


def is_loopback(address: str) -> bool:
    return bool(address) and ip_address(address).is_loopback

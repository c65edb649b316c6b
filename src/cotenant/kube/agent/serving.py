"""Metrics and health by HTTP: plain on a loopback address, else with a certificate made at the start.

Nothing that is served is secret, and nothing can be changed through it: the certificate only keeps figures
from being read on the way. Who scrapes cannot verify it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from aiohttp import web

from cotenant.core.errors import CotenantError
from cotenant.kube.certificates.certificates import issue_self_signed
from cotenant.kube.certificates.live_context import server_context
from cotenant.observe.exposition import CONTENT_TYPE

_LIFETIME = timedelta(days=3650)


@asynccontextmanager
async def serving(
    address: str,
    port: int,
    name: str,
    metrics: Callable[[], Awaitable[bytes]],
    not_ready: Callable[[], list[str]],
    state: Callable[[], Awaitable[bytes]] | None = None,
) -> AsyncIterator[str]:
    """Serves until the block ends; gives the URL. `not_ready` tells what the agent still waits for, `state`
    all that it knows, as JSON.
    """

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def show_health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def show_readiness(_: web.Request) -> web.Response:
        missing = not_ready()
        if missing:
            return web.Response(text="".join(f"{each}\n" for each in missing), status=503)
        return web.Response(text="ok\n")

    async def show_state(_: web.Request) -> web.Response:
        return web.Response(body=await state() if state else b"{}", content_type="application/json")

    app = web.Application()
    app.router.add_get("/state", show_state)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", show_health)
    app.router.add_get("/readyz", show_readiness)
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

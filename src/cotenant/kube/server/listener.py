"""Serves the routes of all parts over TLS, next to /healthz, /readyz, /metrics and /state."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

from cotenant.core.errors import CotenantError
from cotenant.kube.admission.serving import LARGEST_BODY
from cotenant.kube.request_errors import server_log

KEEP_ALIVE = 150.0
"""Seconds. API servers close an idle connection after 90. If we closed it first, a request could meet a
connection that is just being closed, and a pod would be refused.
"""


def runner_for(routes: Iterable[web.RouteDef]) -> web.AppRunner:
    """Its `cleanup` waits for requests that are being answered."""
    app = web.Application(client_max_size=LARGEST_BODY)
    app.add_routes(routes)
    return web.AppRunner(
        app, keepalive_timeout=KEEP_ALIVE, shutdown_timeout=10.0, access_log=None, logger=server_log()
    )


@asynccontextmanager
async def listening(
    address: str | None, port: int, tls: ssl.SSLContext, routes: Iterable[web.RouteDef]
) -> AsyncIterator[None]:
    """Listens until the block ends."""
    runner = runner_for(routes)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, port, ssl_context=tls, backlog=1024).start()
        except OSError as error:
            raise CotenantError(f"port {port}: it cannot be listened on: {error.strerror}") from None
        yield
    finally:
        await runner.cleanup()

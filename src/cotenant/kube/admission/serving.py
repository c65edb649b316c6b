"""Serves the mutating webhook over HTTP, and what else the webhook's listener offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter

from aiohttp import web

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import PATH
from cotenant.kube.admission.review import Answer, review
from cotenant.kube.logs import get_logger
from cotenant.kube.request_errors import read_body, server_log
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import Registry, counter, histogram
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

LARGEST_BODY = 3 * 2**20
"""Bytes; the API server itself takes no larger request."""
KEEP_ALIVE = 150.0
"""Seconds. API servers close an idle connection after 90. If we closed it first, a request could meet a
connection that is just being closed, and a pod would be refused.
"""

Handler = Callable[[web.Request], Awaitable[web.Response]]


def webhook_app(
    settings: Settings,
    dialects: Dialects,
    registry: Registry,
    routes: Iterable[web.RouteDef] = (),
) -> web.Application:
    """`routes`: what is served besides."""
    app = web.Application(client_max_size=LARGEST_BODY)
    app.router.add_post(PATH, _mutating(settings, dialects, registry))
    app.add_routes(routes)
    return app


def webhook_runner(app: web.Application) -> web.AppRunner:
    """Its `cleanup` waits for requests that are being answered."""
    return web.AppRunner(
        app, keepalive_timeout=KEEP_ALIVE, shutdown_timeout=10.0, access_log=None, logger=server_log()
    )


def _mutating(settings: Settings, dialects: Dialects, registry: Registry) -> Handler:
    answered = counter(Metric.WEBHOOK_REQUESTS, registry)
    seconds = histogram(Metric.WEBHOOK_SECONDS, registry)

    async def mutate(request: web.Request) -> web.Response:
        try:
            body = await read_body(request)
        except web.HTTPRequestEntityTooLarge:
            answered.labels("malformed").inc()
            return web.Response(status=413, text=f"body: larger than {LARGEST_BODY} bytes\n")
        except BadInput as error:
            answered.labels("malformed").inc()
            return web.Response(status=400, text=f"{error}\n")
        began = perf_counter()
        answer = _answer(body, settings, dialects)
        seconds.observe(perf_counter() - began)
        answered.labels(answer.result if answer else "failed").inc()
        if answer is None:
            return web.Response(status=500, text="the webhook failed; its log says why\n")
        return web.Response(status=answer.code, body=answer.body, content_type=answer.content_type)

    return mutate


def _answer(body: bytes, settings: Settings, dialects: Dialects) -> Answer | None:
    """None after an error of Cotenant itself: the pod is refused, and the server goes on."""
    try:
        return review(body, settings.admission, dialects)
    except Exception:
        log.exception("pod not reviewed")
        return None

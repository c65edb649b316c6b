"""Answers the mutating webhook over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from time import perf_counter

from aiohttp import web

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import PATH
from cotenant.kube.admission.review import Answer, review
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.logs import get_logger
from cotenant.kube.request_errors import read_body
from cotenant.observe.exposition import Registry, counter, histogram
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

LARGEST_BODY = 3 * 2**20
"""Bytes; the API server itself takes no larger request."""
MOST_AT_ONCE = 16
"""Large bodies that are read at a time; others wait. Anybody on the cluster's network may send them."""
SMALL_BODY = 64 * 2**10
"""Bytes that a connection holds anyway before its body is read. A body that is no larger takes no turn, so
unfinished large ones do not keep usual pods waiting.
"""


def webhook_routes(
    admission: AdmissionSettings, dialects: Dialects, registry: Registry
) -> list[web.RouteDef]:
    """Returns the webhook's one route, with its metrics registered."""
    answered = counter(Metric.WEBHOOK_REQUESTS, registry)
    seconds = histogram(Metric.WEBHOOK_SECONDS, registry)

    turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def mutate(request: web.Request) -> web.Response:
        try:
            async with nullcontext() if _is_small(request) else turns:
                body = await read_body(request)
        except web.HTTPRequestEntityTooLarge:
            answered.labels("malformed").inc()
            return web.Response(status=413, text=f"body: larger than {LARGEST_BODY} bytes\n")
        except BadInput as error:
            answered.labels("malformed").inc()
            return web.Response(status=400, text=f"{error}\n")
        began = perf_counter()
        answer = _answer(body, admission, dialects)
        seconds.observe(perf_counter() - began)
        answered.labels(answer.result if answer else "failed").inc()
        if answer is None:
            return web.Response(status=500, text="the webhook failed; its log says why\n")
        return web.Response(status=answer.code, body=answer.body, content_type=answer.content_type)

    return [web.post(PATH, mutate)]


def _is_small(request: web.Request) -> bool:
    """Reports whether the body is known to be small: not if it comes in chunks or is compressed."""
    length = request.content_length
    return length is not None and length <= SMALL_BODY and "Content-Encoding" not in request.headers


def _answer(body: bytes, admission: AdmissionSettings, dialects: Dialects) -> Answer | None:
    """None after an error of Cotenant itself: the pod is refused, and the server goes on."""
    try:
        return review(body, admission, dialects)
    except Exception:
        log.exception("pod not reviewed")
        return None

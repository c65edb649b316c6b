"""The extender's HTTP side: only the leader answers, and only once its ledger is known to be complete."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram

from cotenant.core.errors import BadInput, CotenantError
from cotenant.kube.extender import messages
from cotenant.kube.extender.binding import Binder
from cotenant.kube.extender.deciding import Decider
from cotenant.kube.extender.inspecting import inspect
from cotenant.kube.receiving import read_body

log = logging.getLogger(__name__)

LARGEST_BODY = 64 * 2**20
"""A scheduler that sends whole nodes, 5,000 of them, sends as much."""
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

Verb = Callable[[bytes], Awaitable[bytes]]


@dataclass
class Extender:
    """The verbs as functions of bodies."""

    decider: Decider
    binder: Binder
    ready: Callable[[], str | None]
    """None if it may answer, else why not."""
    registry: CollectorRegistry

    def __post_init__(self) -> None:
        self._seconds = Histogram(
            "cotenant_scheduler_decision_seconds",
            "Time to answer kube-scheduler",
            ["verb"],
            buckets=BUCKETS,
            registry=self.registry,
        )

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        verbs: dict[str, Verb] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
            "bind": self._bind,
        }
        for name, verb in verbs.items():
            handler = self._handler(name, verb)
            app.router.add_post(f"/{name}", handler)
            app.router.add_post(f"/gpushare-scheduler/{name}", handler)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/gpushare-scheduler/inspect", self._inspect)
        app.router.add_get("/gpushare-scheduler/inspect/{node}", self._inspect)
        return app

    def _handler(self, name: str, verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        seconds = self._seconds.labels(name)

        async def handle(request: web.Request) -> web.Response:
            try:
                body = await read_body(request)
            except BadInput as error:
                return web.Response(
                    body=messages.failed(str(error)), status=400, content_type="application/json"
                )
            began = time.perf_counter()
            status, answer = await self._answer(name, verb, body)
            seconds.observe(time.perf_counter() - began)
            response = web.Response(body=answer, status=status, content_type="application/json")
            if status == 503:
                response.force_close()  # a kept connection would lead here again, and not to who leads now
            return response

        return handle

    async def _answer(self, name: str, verb: Verb, body: bytes) -> tuple[int, bytes]:
        reason = self.ready()
        if reason is not None:
            return 503, messages.failed(reason)
        try:
            return 200, await verb(body)
        except BadInput as error:
            return 400, messages.failed(str(error))
        except CotenantError as error:
            return 500, messages.failed(str(error))
        except Exception:
            log.exception("%s", name)
            return 500, messages.failed(f"{name}: an error of Cotenant itself; its log has the details")

    async def _filter(self, body: bytes) -> bytes:
        return self.decider.filter(messages.read(body, messages.Args))

    async def _prioritize(self, body: bytes) -> bytes:
        return self.decider.prioritize(messages.read(body, messages.Args))

    async def _preempt(self, body: bytes) -> bytes:
        return self.decider.preempt(messages.read(body, messages.PreemptArgs))

    async def _bind(self, body: bytes) -> bytes:
        args = messages.read(body, messages.BindArgs)
        try:
            await self.binder.bind(args)
        except CotenantError as error:
            return messages.bound(str(error))
        return messages.bound()

    async def _health(self, _: web.Request) -> web.Response:
        reason = self.ready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def _inspect(self, request: web.Request) -> web.Response:
        reason = self.ready()
        if reason is not None:
            return web.json_response({"error": reason}, status=503)
        decider = self.decider
        answer = inspect(decider.fleet, decider.pods, decider.dialects, request.match_info.get("node"))
        return web.json_response(answer, status=404 if "error" in answer else 200)

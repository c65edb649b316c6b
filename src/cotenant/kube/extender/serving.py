"""Serves the scheduler extender over HTTP: only the leader answers, once its ledger is complete."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from aiohttp import web

from cotenant.core.errors import BadInput, CotenantError
from cotenant.kube.extender import messages
from cotenant.kube.extender.deciding import Decider
from cotenant.kube.extender.fast_http import Answer, Verb
from cotenant.kube.extender.inspecting import inspect
from cotenant.kube.logs import get_logger
from cotenant.kube.request_errors import read_body
from cotenant.observe.exposition import Registry, histogram
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

LARGEST_BODY = 64 * 2**20
"""Bytes. A scheduler that sends 5,000 whole nodes sends about this much."""

PREFIXES = ("", "/gpushare-scheduler")
"""Configurations made for gpushare's extender have the second."""

CHOOSE = "choose"
"""The verb in place of filter that names the best node alone, where nobody else has a say about nodes."""

WITHOUT_GPU = "prioritize-without-gpu"
"""The verb that a scheduler calls for pods without GPU, where it is set up so."""


@runtime_checkable
class PodBinder(Protocol):
    """Binds pods."""

    @property
    def within(self) -> float:
        """Seconds that one bind takes at most."""

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound, and raises if it is not."""


@dataclass
class Extender:
    """The extender's verbs as functions of request bodies, and the routes beside them."""

    decider: Decider
    binder: PodBinder
    ready: Callable[[], str | None]
    """None if it may answer, else the reason."""
    registry: Registry

    def __post_init__(self) -> None:
        self._seconds = histogram(Metric.DECISION_SECONDS, self.registry)
        self._choose_now = self._deciding(CHOOSE, self._decide_choice)

    def verbs(self) -> dict[str, Verb]:
        """By path."""
        verbs: dict[str, Verb] = {
            "filter": self._deciding("filter", self._filter),
            CHOOSE: self._choose,
            "prioritize": self._deciding("prioritize", self._prioritize),
            WITHOUT_GPU: self._deciding(WITHOUT_GPU, self._prioritize_without_gpu),
            "preempt": self._deciding("preempt", self._preempt),
            "bind": self._bind,
        }
        return {f"{prefix}/{name}": verb for name, verb in verbs.items() for prefix in PREFIXES}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        for path, verb in self.verbs().items():
            app.router.add_post(path, _handler(verb))
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/gpushare-scheduler/inspect", self._inspect)
        app.router.add_get("/gpushare-scheduler/inspect/{node}", self._inspect)
        return app

    def _deciding(self, name: str, decide: Callable[[bytes], bytes]) -> Callable[[bytes], Answer]:
        seconds = self._seconds.labels(name)

        def answer(body: bytes) -> Answer:
            began = time.perf_counter()
            try:
                said = self._unready() or (200, decide(body))
            except Exception as error:  # noqa: BLE001 - each is an answer
                said = _failed(name, error)
            seconds.observe(time.perf_counter() - began)
            return said

        return answer

    def _choose(self, body: bytes) -> Answer | Awaitable[Answer]:
        waits = self.decider.bind_order.must_wait()
        return self._choose_in_turn(body) if waits else self._choose_now(body)

    async def _choose_in_turn(self, body: bytes) -> Answer:
        await self.decider.bind_order.wait()
        return self._choose_now(body)

    async def _bind(self, body: bytes) -> Answer:
        began = time.perf_counter()
        try:
            said = self._unready() or (200, await self._bound(messages.read(body, messages.BindArgs)))
        except Exception as error:  # noqa: BLE001 - each is an answer
            said = _failed("bind", error)
        self._seconds.labels("bind").observe(time.perf_counter() - began)
        return said

    async def _bound(self, args: messages.BindArgs) -> bytes:
        order = self.decider.bind_order
        number = order.begun(args.uid)
        try:
            await self.binder.bind(args.namespace, args.name, args.uid, args.node)
        except CotenantError as error:
            return messages.bound(str(error))
        finally:
            order.ended(number)
        return messages.bound()

    def _unready(self) -> Answer | None:
        reason = self.ready()
        return None if reason is None else (503, messages.failed(reason))

    def _filter(self, body: bytes) -> bytes:
        return self.decider.filter(messages.read(body, messages.Args))

    def _decide_choice(self, body: bytes) -> bytes:
        return self.decider.choose(messages.read(body, messages.Args))

    def _prioritize(self, body: bytes) -> bytes:
        return self.decider.prioritize(messages.read(body, messages.Args))

    def _prioritize_without_gpu(self, body: bytes) -> bytes:
        return self.decider.prioritize_without_gpu(messages.read(body, messages.Args))

    def _preempt(self, body: bytes) -> bytes:
        return self.decider.preempt(messages.read(body, messages.PreemptArgs))

    async def _health(self, _: web.Request) -> web.Response:
        reason = self.ready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def _inspect(self, request: web.Request) -> web.Response:
        reason = self.ready()
        if reason is not None:
            return web.json_response({"error": reason}, status=503)
        decider = self.decider
        answer = inspect(decider.cluster, decider.pods, decider.dialects, request.match_info.get("node"))
        return web.json_response(answer, status=404 if "error" in answer else 200)


def _failed(name: str, error: Exception) -> Answer:
    if isinstance(error, BadInput):
        return 400, messages.failed(str(error))
    if isinstance(error, CotenantError):
        return 500, messages.failed(str(error))
    log.error("request failed", verb=name, exc_info=error)
    return 500, messages.failed(f"{name}: an error of Cotenant itself; its log has the details")


def _handler(verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            answer = verb(await read_body(request))
        except BadInput as error:
            answer = 400, messages.failed(str(error))
        status, body = answer if isinstance(answer, tuple) else await answer
        response = web.Response(body=body, status=status, content_type="application/json")
        if status == 503:
            response.force_close()  # a kept connection would lead here again, and not to the new leader
        return response

    return handle

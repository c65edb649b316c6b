"""A small server that says what a test wants, to meet the edges of the protocol that a real one seldom shows."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.client import Client
from cotenant.kube.api.connection import ConnectionSettings

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = ConnectionSettings(connect=1.0, request=3.0, first_pause=0.01, longest_pause=0.05)


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Replay:
    """Gives its answers in order, and the last one again and again."""

    answers: list[Answer]
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


@asynccontextmanager
async def replaying(*answers: Answer, port=0):
    replay = Replay(list(answers))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", replay.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    replay.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield replay
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(replay: Replay, **access):
    async with Client(Access(replay.url, **access), QUICK) as client:
        yield client


def says(body, status=200, **headers) -> Answer:
    async def answer(request):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        return web.Response(body=data, status=status, headers=given)

    return answer


def fails(code, reason="", message="", **headers) -> Answer:
    return says({"kind": "Status", "code": code, "reason": reason, "message": message}, code, **headers)


def hangs_up() -> Answer:
    """Closes the connection in place of an answer."""

    async def answer(request):
        request.transport.abort()
        await asyncio.sleep(1)
        return web.Response()

    return answer


def waits(seconds: float, then: Answer) -> Answer:
    async def answer(request):
        await asyncio.sleep(seconds)
        return await then(request)

    return answer


def streams(*parts, end="close") -> Answer:
    """A watch: dicts are lines, bytes go out as they are, numbers are pauses. It ends properly (`close`), in the
    middle (`cut`), or never (`hang`).
    """

    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            if isinstance(part, int | float):
                await asyncio.sleep(part)
            else:
                await response.write(part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n")
        if end == "hang":
            await asyncio.sleep(30)
        elif end == "cut":
            request.transport.abort()
        return response

    return answer


def pod(name, version, uid=None, namespace="web", **extra):
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": []}, **extra}


def listing(version, *items, more=""):
    return says(
        {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": more}, "items": items}
    )


def event(kind, object):
    return {"type": kind, "object": object}


def bookmark(version):
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def too_old():
    return event(
        "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    )

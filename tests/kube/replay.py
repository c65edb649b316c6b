"""A small server that says what a test wants, to meet the edges of the protocol that a real one seldom shows."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from aiohttp import web
from kube.connect_proxy import proxying

from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.auth.proxy import proxy_from_url
from cotenant.kube.api.client import Client
from cotenant.kube.api.connection import ConnectionSettings
from cotenant.kube.certificates import certificates
from cotenant.kube.certificates.key_pair import KeyPair
from cotenant.kube.certificates.live_context import server_context

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = ConnectionSettings(connect=1.0, request=3.0, first_pause=0.01, longest_pause=0.05)
DIRECT, PROXIED = "direct", "proxied"
route = DIRECT
"""How clients reach the server: in plain HTTP, or in TLS through a proxy."""


@cache
def loopback_certificate() -> tuple[bytes, KeyPair]:
    """An authority, and a certificate for 127.0.0.1 that it has signed."""
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = certificates.new_authority(now, day)
    return authority.certificate, certificates.issue_serving(authority, ["127.0.0.1"], now, day)


@asynccontextmanager
async def access_to(port: int):
    if route == DIRECT:
        yield Access(f"http://127.0.0.1:{port}")
        return
    async with proxying() as proxy:
        yield Access(
            f"https://127.0.0.1:{port}",
            authority=CredentialFile("authority", data=loopback_certificate()[0]),
            proxy=proxy_from_url(f"http://127.0.0.1:{proxy.port}", "proxy-url"),
        )


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
    access: Access = field(default_factory=lambda: Access(""))

    @property
    def url(self) -> str:
        return self.access.server

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
    tls = None if route == DIRECT else server_context(loopback_certificate()[1])
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    try:
        async with access_to(runner.addresses[0][1]) as access:
            replay.access = access
            yield replay
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(replay: Replay, **access):
    async with Client(replace(replay.access, **access), QUICK) as client:
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

"""The webhook over HTTP, and over the TLS of its keeper."""

from __future__ import annotations

import io
import json
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from kube.admission.reviews import asked
from kube.builders import container, pod
from kube.certificates.test_certificates import fresh
from kube.handshakes import client as tls_client
from prometheus_client import CollectorRegistry

from cotenant.dialects.registry import Dialects
from cotenant.kube.admission import serving
from cotenant.kube.admission.review import review
from cotenant.kube.admission.serving import LARGEST_BODY, webhook_routes
from cotenant.kube.certificates.live_context import LiveContext
from cotenant.kube.server.listener import runner_for
from cotenant.kube.settings import Settings

pytestmark = pytest.mark.asyncio
SETTINGS = Settings()
GPU_POD = pod(container("main", memory="4Gi"))


class Served:
    """The app with all that a test looks at."""

    def __init__(self, client: Any, registry: CollectorRegistry) -> None:
        self.client, self.registry = client, registry

    def count(self, result: str) -> float:
        name = "cotenant_webhook_requests_total"
        return self.registry.get_sample_value(name, {"result": result}) or 0.0


@pytest_asyncio.fixture
async def served() -> Any:
    registry = CollectorRegistry()
    routes = [*webhook_routes(SETTINGS.admission, Dialects(), registry), web.get("/healthz", alive)]
    async with TestClient(TestServer(runner_for(routes).app)) as client:
        yield Served(client, registry)


async def alive(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def test_a_review_is_answered_and_counted(served: Served) -> None:
    body = json.dumps(asked(GPU_POD)).encode()
    answer = await served.client.post("/mutate?timeout=10s", data=body)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert await answer.read() == review(body, SETTINGS.admission, Dialects()).body
    assert served.count("mutated") == 1
    assert served.registry.get_sample_value("cotenant_webhook_seconds_count") == 1


@pytest.mark.parametrize(
    ("body", "status", "result"),
    [
        (json.dumps(asked(pod(container("main")))).encode(), 200, "unchanged"),
        (json.dumps(asked(pod(container("main", memory="x")))).encode(), 200, "refused"),
        (b"", 400, "malformed"),
        (b"\xff" * 1000, 400, "malformed"),
        (b" " * (LARGEST_BODY + 1), 413, "malformed"),
    ],
)
async def test_every_body_is_answered_and_counted(
    served: Served, body: bytes, status: int, result: str
) -> None:
    answer = await served.client.post("/mutate", data=io.BytesIO(body))
    assert answer.status == status
    assert await answer.read()
    assert served.count(result) == 1


async def test_a_body_of_the_largest_size_is_read(served: Served) -> None:
    body = json.dumps(asked(GPU_POD)).encode().ljust(LARGEST_BODY)
    assert (await served.client.post("/mutate", data=io.BytesIO(body))).status == 200


async def test_a_mistake_of_ours_is_told_and_does_not_end_the_server(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oh")

    with monkeypatch.context() as patch:
        patch.setattr(serving, "review", broken)
        answer = await served.client.post("/mutate", data=json.dumps(asked(GPU_POD)).encode())
    assert answer.status == 500
    assert served.count("failed") == 1
    assert "KeyError" in caplog.text
    answer = await served.client.post("/mutate", data=json.dumps(asked(GPU_POD)).encode())
    assert answer.status == 200


async def test_what_else_the_listener_offers_is_served_beside_it(served: Served) -> None:
    assert (await served.client.get("/healthz")).status == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/mutate", 405), ("POST", "/other", 404)])
async def test_nothing_else_is_there(served: Served, method: str, path: str, status: int) -> None:
    assert (await served.client.request(method, path)).status == status


async def test_the_listener_stays_while_the_certificate_changes() -> None:
    kept, live = fresh(), LiveContext()
    runner = runner_for(
        [*webhook_routes(SETTINGS.admission, Dialects(), CollectorRegistry()), web.get("/healthz", alive)]
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=live.context(client_certificates=False))
        await site.start()
        port = runner.addresses[0][1]
        url = f"https://127.0.0.1:{port}/healthz"

        async def answers(session: aiohttp.ClientSession, bundle: bytes) -> bool:
            try:
                async with session.get(
                    url, ssl=tls_client(bundle), server_hostname="cotenant-webhook"
                ) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        async with aiohttp.ClientSession() as kept_open, aiohttp.ClientSession() as anew:
            assert not await answers(anew, kept.bundle)
            live.serve(kept.serving, kept.bundle)
            standing = tls_client(kept.bundle)
            options = {"ssl": standing, "server_hostname": "cotenant-webhook"}
            async with kept_open.get(url, **options) as answer:
                await answer.read()
            other = fresh()
            live.serve(other.serving, other.bundle)
            assert await answers(anew, other.bundle)
            assert not await answers(anew, kept.bundle)
            async with kept_open.get(url, **options) as answer:
                assert answer.status == 200, "a connection that stands goes on"
    finally:
        await runner.cleanup()

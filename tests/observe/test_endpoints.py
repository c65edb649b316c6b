"""The four endpoints that the server and the agent have in common, over HTTP."""

from __future__ import annotations

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from cotenant.observe.endpoints import endpoints

pytestmark = pytest.mark.asyncio


@pytest.fixture
def checks() -> dict[str, str | None]:
    return {}


@pytest_asyncio.fixture
async def client(checks):
    async def metrics() -> bytes:
        return b"cotenant_leader 1.0\n"

    async def state() -> bytes:
        return b'{"leads":true}'

    app = web.Application()
    app.add_routes(endpoints(ready=lambda: checks, metrics=metrics, state=state))
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_it_is_alive_before_it_is_ready(client, checks):
    checks["ledger"] = "this server has not yet read the cluster's grants"
    answer = await client.get("/healthz")
    assert (answer.status, await answer.text()) == (200, "ok\n")
    assert (await client.get("/readyz")).status == 503


async def test_readiness_has_a_line_for_each_check(client, checks):
    checks |= {"certificates": None, "ledger": "this server has not yet read the cluster's grants"}
    answer = await client.get("/readyz")
    assert answer.status == 503
    assert await answer.text() == (
        "[+]certificates ok\n[-]ledger: this server has not yet read the cluster's grants\n"
    )
    checks["ledger"] = None
    answer = await client.get("/readyz")
    assert (answer.status, await answer.text()) == (200, "[+]certificates ok\n[+]ledger ok\n")


async def test_without_checks_it_is_ready(client):
    answer = await client.get("/readyz")
    assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_metrics_and_state_have_their_content_types(client):
    answer = await client.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert await answer.text() == "cotenant_leader 1.0\n"
    answer = await client.get("/state")
    assert (answer.content_type, await answer.json()) == ("application/json", {"leads": True})


async def test_nothing_can_be_sent_to_them(client):
    for path in ("/healthz", "/readyz", "/metrics", "/state"):
        assert (await client.post(path)).status == 405

"""JSON documents over HTTP, from a real server on loopback: good ones, and all kinds of bad ones."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import unused_port
from cluster.testbed.certificates import Authority
from signals.conftest import Opener, QueryOpener, Vault
from signals.examples import example

from cotenant.signals.signal import NoSample, SignalError

pytestmark = pytest.mark.asyncio


class Site:
    """Answers GET with what the test sets: a status, headers and a body."""

    def __init__(self) -> None:
        self.port = unused_port()
        self.status, self.headers, self.body = 200, {"Content-Type": "application/json"}, b"{}"
        self.delay = 0.0
        self.requests: list[web.Request] = []
        self._runner: web.AppRunner | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        await asyncio.sleep(self.delay)
        return web.Response(status=self.status, headers=self.headers, body=self.body)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, document: object) -> None:
        self.body = json.dumps(document).encode()


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.start()
    yield site
    await site.stop()


@pytest.fixture
def ask(site: Site, query: QueryOpener) -> Callable[..., Any]:
    async def ask(path: str = "depth", **more: Any) -> str:
        try:
            return str(await query({"http": {"url": site.url, "path": path, **more}}).read())
        except SignalError as error:
            return f"{'no sample: ' if isinstance(error, NoSample) else ''}{error}"

    return ask


async def test_all_figures_of_a_queue_come_from_one_document(site: Site, queue: Opener):
    site.says({"queues": [{"name": "a.b", "ready": 4, "taken": 2}], "total": {"in": 10, "out": "4"}})
    paths = {"inFlight": "queues[0].taken", "arrived": "total.in", "completed": 'total["out"]'}
    signal = queue({"http": {"url": f"{site.url}/state?full=1", "path": "$.queues[0].ready", **paths}})
    reading = await signal.read()
    assert (reading.backlog, reading.in_flight, reading.arrived, reading.completed) == (4, 2, 10, 4)
    (request,) = site.requests
    assert (request.method, request.path_qs) == ("GET", "/state?full=1")


async def test_in_flight_may_come_from_another_server_than_the_queue(site: Site, queue: Opener):
    site.says({"depth": 3, "busy": 2})
    busy = {"http": {"url": site.url, "path": "busy"}}
    signal = queue({"http": {"url": site.url, "path": "depth"}, "inFlight": busy})
    reading = await signal.read()
    assert (reading.backlog, reading.in_flight) == (3, 2)
    site.says({"depth": 3, "busy": "none"})
    with pytest.raises(SignalError, match="busy of"):
        await signal.read()


@pytest.mark.parametrize(
    ("document", "path", "said"),
    [
        ('{"depth": 3}', "depth", "3.0"),
        ("7", "$", "7.0"),
        ('{"a": {"b.c": [0, "2.5"]}}', 'a["b.c"][1]', "2.5"),
        ('{"depth": null}', "depth", "no sample: depth of"),
        ('{"depth": NaN}', "depth", "no sample: depth of"),
        ('{"depth": "NaN"}', "depth", "no sample: depth of"),
        ('{"depth": Infinity}', "depth", "is inf: a figure from 0"),
        ('{"depth": "many"}', "depth", "not a number: the answer is a text of 4 characters"),
        ('{"depth": true}', "depth", "not a number: the answer is true"),
        ('{"depth": -1}', "depth", "is -1: a figure from 0"),
        ('{"depth": [1]}', "depth", "not a number: the answer is a list of 1"),
        (f'{{"depth": {"9" * 400}}}', "depth", "a figure from 0 to"),
        ('{"deep": {"x": 1, "y": 2}}', "deep.z", "is not in the answer: deep is an object with x, y"),
        ("[1, 2]", "[2]", "is not in the answer: the document is a list of 2"),
        ("<html>", "depth", "does not answer JSON: check url"),
        ("", "depth", "does not answer JSON: check url"),
        ("[" * 100_000, "depth", "JSON"),
    ],
)
async def test_what_stands_at_the_path_is_a_figure_or_a_clear_failure(
    document: str, path: str, said: str, site: Site, ask: Any
):
    site.body = document.encode()
    answer = await ask(path)
    assert said in answer
    assert len(answer) < 300


async def test_an_answer_that_is_too_large_or_compressed_is_refused(site: Site, ask: Any):
    site.body = b"[" + b"1," * 2_000_000 + b"1]"
    assert "more than 1 MiB" in await ask("[0]")
    site.body, site.headers = b"\x1f\x8b", {"Content-Encoding": "gzip"}
    assert "compression that was not asked for" in await ask()


async def test_redirects_are_not_followed(site: Site, ask: Any):
    site.status, site.headers = 302, {"Location": "http://169.254.169.254/latest/meta-data/"}
    answer = await ask()
    assert "redirects (302), which is not followed" in answer
    assert "169.254" not in answer
    assert len(site.requests) == 1


@pytest.mark.parametrize("status", [204, 404, 500, 503])
async def test_another_status_is_a_failure(status: int, site: Site, ask: Any):
    site.status = status
    site.body = b""
    assert f"answers {status}" in await ask()


async def test_time_outs_and_closed_ports_are_named(site: Site, ask: Any, monkeypatch: pytest.MonkeyPatch):
    site.delay = 0.6
    with monkeypatch.context() as patched:
        patched.setattr("cotenant.signals.http_client.TIMEOUT", 0.2)
        assert f"{site.url} did not answer within 0.2 s" in await ask()
    await site.stop()
    assert f"{site.url} cannot be reached: Connection refused" in await ask()
    site.delay = 0.0
    site.says({"depth": 1})
    await site.start()
    assert await ask() == "1.0"


async def test_credentials_come_from_secrets_and_are_never_shown(
    site: Site, ask: Any, secrets: Vault, caplog: pytest.LogCaptureFixture
):
    site.says({"depth": 1})
    secrets |= {("http", "password"): "p@ss wörd", ("http", "token"): "token-and-secret"}
    password = {"secret": {"name": "http", "key": "password"}}
    token = {"secret": {"name": "http", "key": "token"}}
    assert await ask(username="reader", passwordFrom=password) == "1.0"
    assert await ask(tokenFrom=token, headers={"X-Scope-OrgID": "team"}) == "1.0"
    assert await ask(url=site.url.replace("://", "://reader:in-url@")) == "1.0"
    basic, bearer, in_url = (request.headers["Authorization"] for request in site.requests)
    assert basic == "Basic cmVhZGVyOnBAc3Mgd8O2cmQ="
    assert bearer == "Bearer token-and-secret"
    assert in_url == "Basic cmVhZGVyOmluLXVybA=="
    assert site.requests[1].headers["X-Scope-OrgID"] == "team"
    site.status = 401
    said = await ask(tokenFrom=token)
    assert "answers 401: the credentials are refused" in said
    assert "token-and-secret" not in said + caplog.text
    assert "it asks for credentials" in await ask()
    secrets["http", "token"] = "two\nlines"
    said = await ask(tokenFrom=token)
    assert "a credential has a character that HTTP cannot carry" in said
    assert "lines" not in said


async def test_tls_is_verified_against_the_authority_of_a_secret(
    query: QueryOpener, secrets: Vault, authority: Authority
):
    pair = authority.issue("site", user="site", names=["site.example"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    site = Site()
    site.says({"depth": 1})
    await site.start(context)
    secrets["tls", "ca.crt"] = authority.pair.certificate.read_text()
    authorities = {"caFrom": {"secret": {"name": "tls", "key": "ca.crt"}}}

    async def ask(**tls: Any) -> str:
        written = {"url": f"https://127.0.0.1:{site.port}", "path": "depth", "tls": tls}
        try:
            return str(await query({"http": written}).read())
        except SignalError as error:
            return str(error)

    try:
        assert await ask(serverName="site.example", **authorities) == "1.0"
        assert "check tls.caFrom" in await ask()
        assert "check tls.caFrom and tls.serverName" in await ask(**authorities)
        assert await ask(insecureSkipVerify=True) == "1.0"
    finally:
        await site.stop()


async def test_the_example_of_the_page(site: Site, queue: Opener):
    site.says({"queues": {"room-scene": {"waiting": 4, "running": 2}}})
    reading = await queue(example("http", 0, site.port)).read()
    assert (reading.backlog, reading.in_flight) == (4, 2)
    assert site.requests[0].path == "/state"

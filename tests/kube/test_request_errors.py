"""Broken HTTP is answered as such, and told in a line; a failure of ours keeps its traceback."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import unused_port
from kube.admission.reviews import asked
from kube.builders import container, pod
from kube.world import World
from prometheus_client import CollectorRegistry

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.serving import webhook_routes
from cotenant.kube.extender.serving import Extender
from cotenant.kube.logs import Formatter, logfmt
from cotenant.kube.request_errors import read_body, server_log
from cotenant.kube.server.listener import runner_for
from cotenant.kube.settings import Settings

pytestmark = pytest.mark.asyncio
REVIEW = json.dumps(asked(pod(container("main", memory="4Gi")))).encode()
NOT_PACKED = (f"Content-Length: {len(REVIEW)}", "Content-Encoding: gzip")


async def echo(request: web.Request) -> web.Response:
    try:
        return web.Response(body=await read_body(request))
    except BadInput as error:
        return web.Response(status=400, text=str(error))


async def fail(request: web.Request) -> web.Response:
    raise ZeroDivisionError(request.path)


@pytest_asyncio.fixture
async def port() -> Any:
    app = web.Application()
    app.router.add_post("/echo", echo)
    app.router.add_post("/fail", fail)
    runner = web.AppRunner(app, access_log=None, logger=server_log())
    async for each in listening(runner):
        yield each


async def listening(runner: web.AppRunner) -> Any:
    await runner.setup()
    number = unused_port()
    await web.TCPSite(runner, "127.0.0.1", number).start()
    yield number
    await runner.cleanup()


async def send(port: int, path: str, body: bytes, *headers: str, wait: bool = True) -> tuple[int, bytes]:
    """By hand, since no client sends such things."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"POST {path} HTTP/1.1", "Host: it", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    head, _, rest = (await reader.read() if wait else b"HTTP/1.1 0").partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), rest


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
async def test_a_body_that_is_not_packed_as_it_says_is_bad_input(
    port: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, said = await send(port, "/echo", b"plain", "Content-Length: 5", f"Content-Encoding: {kind}")
    assert (status, said.decode()) == (
        400,
        f"body: it cannot be read: 400, message: Can not decode content-encoding: {kind}",
    )
    assert "Traceback" not in caplog.text


async def test_whoever_leaves_in_the_middle_of_a_body_is_a_line_in_the_log_at_most(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    await send(port, "/echo", b"half", "Content-Length: 100", wait=False)
    assert await send(port, "/echo", b"whole", "Content-Length: 5") == (200, b"whole")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("header", ["Content-Length: ten", "Transfer-Encoding: chunked", "Bad\0: x"])
async def test_broken_http_is_a_line_in_the_log(
    port: int, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await send(port, "/echo", b"not a chunk\r\n" * 100, header))[0] == 400
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    written = Formatter(logfmt).format(record)
    assert "127.0.0.1" in written
    assert 'error="400, message:' in written
    assert "\n" not in written
    assert len(written) < 400


async def test_a_failure_of_ours_keeps_its_traceback(port: int, caplog: pytest.LogCaptureFixture) -> None:
    assert (await send(port, "/fail", b"", "Content-Length: 0"))[0] == 500
    assert "ZeroDivisionError: /fail" in caplog.text
    assert "Traceback" in caplog.text


async def test_the_webhook_says_so_and_counts_it() -> None:
    registry = CollectorRegistry()
    routes = webhook_routes(Settings().admission, Dialects(), registry)
    async for port in listening(runner_for(routes)):
        status, said = await send(port, "/mutate", REVIEW, *NOT_PACKED)
    assert (status, said.startswith(b"body: it cannot be read")) == (400, True)
    assert registry.get_sample_value("cotenant_webhook_requests_total", {"result": "malformed"}) == 1


@pytest.mark.parametrize("verb", ["filter", "choose", "prioritize", "preempt", "bind"])
async def test_the_extender_says_so_as_it_says_everything(verb: str) -> None:
    at = World()
    extender = Extender(at.decider, at.binder, lambda: None, CollectorRegistry())
    async for port in listening(web.AppRunner(extender.app(), logger=server_log())):
        status, said = await send(port, f"/{verb}", REVIEW, *NOT_PACKED)
    assert status == 400
    assert "cannot be read" in json.loads(said)["Error"]

"""Requests that are never finished, over real sockets: they take little memory and keep nobody waiting long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from kube.admission.reviews import asked
from kube.builders import container, pod
from prometheus_client import CollectorRegistry

from cotenant.dialects.registry import Dialects
from cotenant.kube import request_errors
from cotenant.kube.admission import serving
from cotenant.kube.admission.serving import webhook_routes
from cotenant.kube.server.listener import runner_for
from cotenant.kube.settings import Settings

pytestmark = pytest.mark.asyncio
REVIEW = json.dumps(asked(pod(container("main", memory="4Gi")))).encode()
LARGE = REVIEW.ljust(100_000)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest_asyncio.fixture
async def port() -> Any:
    runner = runner_for(webhook_routes(Settings().admission, Dialects(), CollectorRegistry()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def begun(port: int, body: bytes, *, missing: int = 1) -> Stream:
    """Sends a request without its last bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /mutate HTTP/1.1\r\nHost: it\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body[: len(body) - missing])
    await writer.drain()
    return reader, writer


async def finished(stream: Stream, rest: bytes = b"") -> int:
    """The status of the answer."""
    reader, writer = stream
    writer.write(rest)
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


async def test_a_body_that_does_not_arrive_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_errors, "BODY_WITHIN", 0.1)
    for body in (REVIEW, LARGE):
        assert await asyncio.wait_for(finished(await begun(port, body)), 10) == 400


async def test_few_large_bodies_are_read_at_once_and_all_are_answered(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, most, all_turns = 0, 0, asyncio.Event()
    read_body = serving.read_body

    async def counted(request: web.Request) -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        if reading == serving.MOST_AT_ONCE:
            all_turns.set()
        try:
            return await read_body(request)
        finally:
            reading -= 1

    monkeypatch.setattr(serving, "read_body", counted)
    streams = [await begun(port, LARGE) for _ in range(40)]
    await all_turns.wait()
    assert await finished(await begun(port, REVIEW, missing=0)) == 200, "a usual pod does not wait"
    assert most <= 17
    answers = await asyncio.gather(*(finished(stream, b" ") for stream in streams))
    assert answers == [200] * 40
    assert most <= 17

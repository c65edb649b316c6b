"""Servers that somebody wrote to do harm, or that are something else: every signal fails in time, with words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
import redis
from signals.conftest import Opener
from signals.servers import Redis, Sentinel, free_ports

from cotenant.signals.signal import SignalError

pytestmark = pytest.mark.asyncio

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[int]]]:
    """Serves a handler on a free port; returns the port."""
    made: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(handler: Handler) -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())
            try:
                await handler(reader, writer)
            except OSError:
                pass
            finally:
                writer.close()

        made.append(await asyncio.start_server(handle, "127.0.0.1", 0))
        return made[-1].sockets[0].getsockname()[1]

    yield start
    for server in made:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("redis_client", "rabbitmq_amqp", "http_client", "nats"):
        monkeypatch.setattr(f"cotenant.signals.{module}.TIMEOUT", 2.0)


def queues(port: int) -> dict[str, dict[str, Any]]:
    slots = {"slots": True}
    return {
        "redis": {"redis": {"url": f"redis://127.0.0.1:{port}", "list": "a"}, "inFlight": slots},
        "stream": {"redis": {"url": f"redis://127.0.0.1:{port}", "stream": "a", "group": "b"}},
        "key": {"redis": {"url": f"redis://127.0.0.1:{port}", "list": "a"}, "inFlight": {"key": "b"}},
        "sentinel": {
            "redis": {"url": f"redis+sentinel://127.0.0.1:{port}/a", "list": "a"},
            "inFlight": slots,
        },
        "cluster": {"redis": {"url": f"redis+cluster://127.0.0.1:{port}", "list": "a"}, "inFlight": slots},
        "amqp": {"rabbitmq": {"url": f"amqp://127.0.0.1:{port}", "queue": "a"}, "inFlight": slots},
        "management": {"rabbitmq": {"url": f"http://127.0.0.1:{port}", "queue": "a"}},
        "prometheus": {"prometheus": {"url": f"http://127.0.0.1:{port}", "query": "a", "inFlight": "b"}},
        "http": {"http": {"url": f"http://127.0.0.1:{port}", "path": "a", "inFlight": "b"}},
        "nats": {"nats": {"url": f"nats://127.0.0.1:{port}", "stream": "a", "consumer": "b"}},
    }


KINDS = list(queues(0))


async def failure(signal: Any) -> str:
    with pytest.raises(SignalError) as failed:
        async with asyncio.timeout(20):
            await signal.read()
    assert len(str(failed.value)) < 500
    return str(failed.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_closes_at_once(kind: str, serve: Any, queue: Opener):
    async def close(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        pass

    port = await serve(close)
    assert str(port) in await failure(queue(queues(port)[kind]))


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_answers_something_else(kind: str, serve: Any, queue: Opener):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n" * 3)
        await reader.read(10)

    port = await serve(greet)
    await failure(queue(queues(port)[kind]))


@pytest.mark.parametrize(
    ("kind", "greeting", "body"),
    [
        ("redis", b"", b"$1000000000\r\n"),
        ("redis", b"", b"+"),
        ("stream", b"", b"*1\r\n$1000000000\r\n"),
        ("amqp", b"\x01\x00\x00\x3f\xff\xff\xff", b""),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b""),
        ("http", b"HTTP/1.1 200 OK\r\nX: ", b""),
        ("prometheus", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3b9aca00\r\n", b""),
        ("nats", b'INFO {"max_payload": 1000}\r\nPONG\r\nMSG a 1 1000000000\r\n', b""),
        ("nats", b"INFO ", b""),
    ],
)
async def test_one_that_answers_without_end_is_cut_off(
    kind: str, greeting: bytes, body: bytes, serve: Any, queue: Opener
):
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if kind != "nats":
            await reader.read(65536)
        writer.write(greeting + body)
        while True:
            writer.write(b"7" * 65536)
            sent += 65536
            await writer.drain()

    port = await serve(flood)
    await failure(queue(queues(port)[kind]))
    assert sent < 200 << 20


@pytest.mark.parametrize(
    "reply",
    [
        b":-1\r\n",
        b":99999999999999999999999999\r\n",
        b"$3\r\nabc\r\n",
        b"*1\r\n:1\r\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"+OK\r\n",
        b"*1\r\n" * 5000,
        b"-ERR \xff\xfe no\r\n",
        b"*1\r\n*4\r\n$4\r\nname\r\n$1\r\nb\r\n$3\r\nlag\r\n$1\r\nx\r\n",
        b"*1\r\n*6\r\n$4\r\nname\r\n$1\r\nb\r\n$7\r\npending\r\n:1\r\n$3\r\nlag\r\n$1\r\nx\r\n",
    ],
)
@pytest.mark.parametrize("kind", ["redis", "stream", "key"])
async def test_a_redis_that_answers_nonsense(kind: str, reply: bytes, serve: Any, queue: Opener):
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            for _ in range(max(1, data.count(b"*"))):
                writer.write(reply)

    port = await serve(nonsense)
    await failure(queue(queues(port)[kind]))


@pytest.mark.parametrize("kind", ["management", "prometheus", "http"])
async def test_a_document_with_objects_in_place_of_words(kind: str, serve: Any, queue: Opener):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            body = b'{"state": {}, "status": {}, "rates_mode": [], "message_stats": 1, "a": {}}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    port = await serve(answer)
    await failure(queue(queues(port)[kind]))


async def test_a_nats_server_that_wants_no_tls_gets_no_password(
    serve: Any, queue: Opener, secrets: dict[tuple[str, str], str]
):
    sent = bytearray()

    async def in_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"auth_required": true, "max_payload": 1000}\r\n')
        while data := await reader.read(65536):
            sent.extend(data)
            writer.write(b"PONG\r\n")

    port = await serve(in_clear)
    secrets["nats", "password"] = "hunter2"
    password = {"username": "reader", "passwordFrom": {"secret": {"name": "nats", "key": "password"}}}
    written = {"url": f"tls://127.0.0.1:{port}", "stream": "a", "consumer": "b", **password}
    assert "does not use TLS: nothing was sent" in await failure(queue({"nats": written}))
    assert b"hunter2" not in sent


async def test_a_sentinel_that_names_a_metadata_service_as_master(tmp_path, queue: Opener):
    sentinel = Sentinel(tmp_path, 6379, "sentinel monitor lure 169.254.169.254 6379 1")
    sentinel.start()
    try:
        written = {"url": f"redis+sentinel://127.0.0.1:{sentinel.port}/lure", "list": "a"}
        said = await failure(queue({"redis": written, "inFlight": {"slots": True}}))
        assert "169.254.169.254 is 169.254.169.254, a link-local address" in said
    finally:
        sentinel.stop()


async def test_a_cluster_that_names_a_metadata_service_as_one_of_its_servers(
    redis_of: Callable[..., Redis], queue: Opener
):
    options = (
        "cluster-enabled yes",
        f"cluster-port {free_ports(1)[0]}",
        "cluster-announce-ip 169.254.169.254",
    )
    node = redis_of(*options)
    written = {"url": f"redis+cluster://127.0.0.1:{node.port}", "list": "a"}
    with redis.Redis(port=node.port) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
    said = await failure(queue({"redis": written, "inFlight": {"slots": True}}))
    assert "169.254.169.254, a link-local address" in said


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address that is not loopback, and leads to this machine."""
    loop = asyncio.get_event_loop()
    real = loop.create_connection

    async def create_connection(factory: Any, host: str, port: int, **rest: Any) -> Any:
        return await real(factory, "127.0.0.1" if host == "10.0.0.7" else host, port, **rest)

    monkeypatch.setattr(loop, "create_connection", create_connection)
    return "10.0.0.7"


async def test_a_sentinel_or_a_cluster_that_names_the_servers_own_loopback(
    tmp_path, redis_of: Callable[..., Redis], in_cluster: Opener, elsewhere: str
):
    victim = redis_of()
    sentinel = Sentinel(tmp_path, victim.port, f"sentinel monitor lure 127.0.0.1 {victim.port} 1")
    sentinel.start()
    node = redis_of(
        "cluster-enabled yes", f"cluster-port {free_ports(1)[0]}", "cluster-announce-ip 127.0.0.1"
    )
    with redis.Redis(port=node.port) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
    try:
        for url in (
            f"redis+sentinel://{elsewhere}:{sentinel.port}/lure",
            f"redis+cluster://{elsewhere}:{node.port}",
        ):
            said = await failure(
                in_cluster({"redis": {"url": url, "list": "a"}, "inFlight": {"slots": True}})
            )
            assert "127.0.0.1, a loopback address" in said, url
    finally:
        sentinel.stop()

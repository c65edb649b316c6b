"""Whatever a server does, both transports return a complete response or BrokenExchange, and use no connection
that they should not use.
"""

import asyncio
import contextlib
import tracemalloc
from contextlib import asynccontextmanager

import pytest
from kube.connect_proxy import proxying
from kube.replay import DIRECT, PROXIED, loopback_certificate

from cotenant.kube.api.auth.proxy import Proxy
from cotenant.kube.api.auth.tls import client_context
from cotenant.kube.api.http.direct import DirectTransport
from cotenant.kube.api.http.http1 import HttpConnection
from cotenant.kube.api.http.proxied import ProxiedTransport
from cotenant.kube.api.http.request import BrokenExchange, Request
from cotenant.kube.certificates.live_context import server_context

pytestmark = pytest.mark.asyncio

REQUEST = Request("GET", "/", ())
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Peer:
    """Says the same to each request, and closes the connection after the first unless it is to `keep` it."""

    def __init__(self, *pieces: bytes, keep: bool = True, pause: float = 0.0) -> None:
        self.pieces, self.keep, self.pause = pieces, keep, pause
        self.connections = 0
        self.ended = 0
        self.tasks = set()

    async def handle(self, reader, writer):
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(self.pause)
                if not self.keep:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()


@pytest.fixture(params=[DIRECT, PROXIED])
def transport_to(request):
    """Opens a transport to a peer: straight, in plain HTTP, or through a proxy, in TLS."""

    @asynccontextmanager
    async def opened(peer: Peer, **settings):
        how = {"connect_seconds": 1.0, "idle_seconds": 30.0, "max_connections": 4, **settings}
        authority, pair = loopback_certificate()
        tls = None if request.param == DIRECT else server_context(pair)
        server = await asyncio.start_server(peer.handle, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        async with proxying() as proxy:
            if request.param == DIRECT:
                transport = DirectTransport("127.0.0.1", port, None, host_header="x", **how)
            else:
                context = client_context(authority, verify=True, certificate=b"", key=b"")
                transport = ProxiedTransport(
                    f"https://127.0.0.1:{port}",
                    (context, "127.0.0.1"),
                    Proxy(f"http://127.0.0.1:{proxy.port}"),
                    **how,
                )
            try:
                yield transport
            finally:
                await transport.close()
                server.close()
                if peer.tasks:
                    await asyncio.wait(peer.tasks)

    return opened


def soon(seconds: float = 1.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def exchange(transport, limit: int | None = None):
    response = await transport.send(REQUEST, soon())
    try:
        return response.status, await response.read(soon(), limit)
    finally:
        response.release()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (HELLO, b"hello"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
            b"hello",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n", b"hi"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, b"hello"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO, b"hello"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
async def test_an_answer_is_read_in_whole_however_it_is_cut(transport_to, answer, body, apart):
    peer = Peer(*([bytes([byte]) for byte in answer] if apart else [answer]))
    async with transport_to(peer) as transport:
        for _ in range(3):
            _, found = await exchange(transport)
            assert found == body
    assert peer.connections == 1


async def test_a_descriptor_that_the_event_loop_takes_for_used_is_a_connection_that_failed(monkeypatch):
    async def in_use(*_, **__):
        raise RuntimeError("File descriptor 12 is used by transport")

    monkeypatch.setattr("cotenant.kube.api.http.direct.start_connection", in_use)
    transport = DirectTransport(
        "127.0.0.1", 1, None, host_header="x", connect_seconds=1.0, idle_seconds=30.0, max_connections=1
    )
    for _ in range(2):
        with pytest.raises(OSError, match="descriptor 12"):
            await transport.send(REQUEST, asyncio.get_running_loop().time() + 1)


async def test_an_answer_without_a_length_ends_with_the_connection(transport_to):
    peer = Peer(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo", keep=False)
    async with transport_to(peer) as transport:
        assert await exchange(transport) == (200, b"hello")
        assert await exchange(transport) == (200, b"hello")
    assert peer.connections == 2


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Le"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"],
        [b"SSH-2.0-OpenSSH_9.2\r\n"],
        [b"\x15\x03\x01\x00\x02\x02\x46"],
    ],
)
async def test_what_is_cut_off_or_no_http_is_never_taken_for_an_answer(transport_to, pieces):
    async with transport_to(Peer(*pieces, keep=False)) as transport:
        for _ in range(2):
            with pytest.raises(BrokenExchange):
                await exchange(transport)


async def test_a_server_that_wants_no_more_gets_a_new_connection(transport_to):
    peer = Peer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
    async with transport_to(peer) as transport:
        for _ in range(3):
            assert await exchange(transport) == (200, b"hi")
    assert peer.connections == 3


async def test_what_comes_unasked_ends_the_connection_and_is_no_answer(transport_to):
    """Such as a second answer, which the next request would take for its own."""
    peer = Peer(HELLO, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother", pause=0.05)
    async with transport_to(peer) as transport:
        assert await exchange(transport) == (200, b"hello")
        await asyncio.sleep(0.1)
        assert await exchange(transport) == (200, b"hello")
    assert peer.connections == 2


async def test_two_answers_in_one_piece_are_no_answer_to_the_next(transport_to):
    peer = Peer(HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")
    async with transport_to(peer) as transport:
        for _ in range(3):
            assert await exchange(transport) == (200, b"hello")


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used(transport_to):
    peer = Peer(HELLO, keep=False)
    async with transport_to(peer) as transport:
        for _ in range(3):
            assert await exchange(transport) == (200, b"hello")
            await asyncio.sleep(0.02)
    assert peer.connections == 3


async def test_a_long_body_is_read_in_whole_or_as_far_as_it_is_wanted(transport_to):
    body = bytes(range(256)) * 40_000
    peer = Peer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    async with transport_to(peer) as transport:
        assert await exchange(transport) == (200, body)
        assert await exchange(transport, 1000) == (200, body[:1000])
        assert await exchange(transport) == (200, body)
    assert peer.connections == 2  # the second was not read to its end


async def test_a_server_that_is_faster_than_its_reader_waits(transport_to):
    sent = 0

    async def endless(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")  # an answer without a request would be cut off
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                await writer.drain()
                sent += 65536
        except ConnectionError:
            writer.close()

    peer = Peer()
    peer.handle = endless
    async with transport_to(peer) as transport:
        response = await transport.send(REQUEST, soon())
        await asyncio.sleep(0.3)
        before = sent
        assert before < 30 * 2**20
        await asyncio.sleep(0.2)
        assert sent == before
        while sent == before:
            assert await response.chunk()
            await asyncio.sleep(0)
        response.release()


async def test_no_more_connections_than_allowed_and_whoever_gives_up_leaves_no_trace(transport_to):
    peer = Peer(b"", HELLO, pause=0.05)
    async with transport_to(peer, max_connections=2) as transport:
        calls = [asyncio.create_task(exchange(transport)) for _ in range(10)]
        await asyncio.sleep(0.01)
        for call in (calls[0], calls[5]):
            call.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(each == (200, b"hello") for each in found) == 8
        assert peer.connections <= 3
        held = [await transport.send(REQUEST, soon()) for _ in range(2)]
        with pytest.raises(TimeoutError):
            await transport.send(REQUEST, soon(0.05))
        for response in held:
            response.release()
        assert await exchange(transport) == (200, b"hello")


async def test_connections_that_nobody_uses_are_closed(transport_to):
    peer = Peer(HELLO)
    async with transport_to(peer, idle_seconds=0.1) as transport:
        await asyncio.gather(*(exchange(transport) for _ in range(3)))
        assert peer.connections == 3
        await asyncio.sleep(0.3)
        assert peer.ended == 3
        assert await exchange(transport) == (200, b"hello")


async def test_a_retired_transport_completes_what_is_under_way_and_keeps_nothing(transport_to):
    peer = Peer(b"", HELLO, pause=0.05)
    async with transport_to(peer) as transport:
        call = asyncio.create_task(exchange(transport))
        await asyncio.sleep(0.02)
        transport.retire()
        assert await call == (200, b"hello")
        await asyncio.sleep(0.1)
        assert peer.ended == 1


async def test_a_retired_transport_also_sends_what_waits_for_a_connection(transport_to):
    peer = Peer(b"", HELLO, pause=0.05)
    async with transport_to(peer, max_connections=1) as transport:
        calls = [asyncio.create_task(exchange(transport)) for _ in range(3)]
        await asyncio.sleep(0.02)
        transport.retire()
        assert await asyncio.gather(*calls) == [(200, b"hello")] * 3
        await asyncio.sleep(0.1)
        assert peer.ended == peer.connections


async def test_a_retired_transport_closes_although_a_request_gave_up_waiting(transport_to):
    peer = Peer(HELLO)
    async with transport_to(peer, max_connections=1) as transport:
        held = await transport.send(REQUEST, soon())
        with pytest.raises(TimeoutError):
            await transport.send(REQUEST, soon(0.05))
        transport.retire()
        held.release()
        await asyncio.sleep(0.1)
        assert peer.ended == 1


@pytest.mark.parametrize("transport_to", [PROXIED], indirect=True)
async def test_a_request_that_waits_while_the_transport_closes_was_surely_not_sent(transport_to):
    """An OSError says so. Callers handle it, but not the RuntimeError that aiohttp raises."""
    async with transport_to(Peer(HELLO), max_connections=1) as transport:
        held = await transport.send(REQUEST, soon())
        waits = asyncio.create_task(transport.send(REQUEST, soon()))
        await asyncio.sleep(0.02)
        await transport.close()
        held.release()
        with pytest.raises(OSError, match="the client was closed"):
            await waits


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_request_whose_pooled_connection_breaks_is_not_sent_again(transport_to, method):
    """The server may have carried it out: a second DELETE could remove an object that was created since."""
    seen = []

    async def answer_once(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for answer in (HELLO, b""):
                seen.append((await reader.readuntil(b"\r\n\r\n")).split()[0].decode())
                writer.write(answer)
        writer.close()

    peer = Peer()
    peer.handle = answer_once
    async with transport_to(peer) as transport:
        assert await exchange(transport) == (200, b"hello")
        with pytest.raises(BrokenExchange):
            await transport.send(Request(method, "/", ()), soon())
        await asyncio.sleep(0.05)
        assert seen == ["GET", method]


async def test_nobody_there_is_an_error_before_anything_is_sent(transport_to):
    peer = Peer()
    async with transport_to(peer) as transport:
        pass
    with pytest.raises(OSError):
        await exchange(transport)


async def test_a_connection_keeps_nothing_of_a_body_that_was_read():
    """It may be idle for half a minute, and a page of a list is long."""
    connection = HttpConnection(lambda _: None)
    connection.send(b"")
    size = 8 << 20
    tracemalloc.start()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    for _ in range(8):
        connection.data_received(bytes(1 << 20))
    body = await connection.read(soon())
    assert len(body) == size
    del body
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 1 << 20

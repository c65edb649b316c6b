"""Whatever a server does, an answer is whole or Broken, and no connection is used that should not be."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from cotenant.kube.api.http import Broken, HttpConnection, HttpPool

pytestmark = pytest.mark.asyncio

ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
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


@asynccontextmanager
async def wire_to(peer: Peer, **settings):
    server = await asyncio.start_server(peer.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wire = HttpPool("127.0.0.1", port, None, **{"within": 1.0, "idle": 30.0, "most": 4, **settings})
    try:
        yield wire
    finally:
        await wire.close()
        server.close()
        if peer.tasks:
            await asyncio.wait(peer.tasks)


async def link_of(wire: HttpPool, within: float = 1.0) -> HttpConnection:
    return await wire.link(asyncio.get_running_loop().time() + within)


async def asked(wire: HttpPool, most: int | None = None):
    link = await link_of(wire)
    try:
        link.ask(ASKED)
        await link.begun()
        return link.status, await link.whole(most)
    finally:
        wire.done(link)


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
async def test_an_answer_is_read_in_whole_however_it_is_cut(answer, body, apart):
    peer = Peer(*([bytes([byte]) for byte in answer] if apart else [answer]))
    async with wire_to(peer) as wire:
        for _ in range(3):
            _, found = await asked(wire)
            assert found == body
    assert peer.connections == 1


async def test_an_answer_without_a_length_ends_with_the_connection():
    peer = Peer(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo", keep=False)
    async with wire_to(peer) as wire:
        assert await asked(wire) == (200, b"hello")
        assert await asked(wire) == (200, b"hello")
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
async def test_what_is_cut_off_or_no_http_is_never_taken_for_an_answer(pieces):
    async with wire_to(Peer(*pieces, keep=False)) as wire:
        for _ in range(2):
            with pytest.raises(Broken):
                await asked(wire)


async def test_a_server_that_wants_no_more_gets_a_new_connection():
    peer = Peer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
    async with wire_to(peer) as wire:
        for _ in range(3):
            assert await asked(wire) == (200, b"hi")
    assert peer.connections == 3


async def test_what_comes_unasked_ends_the_connection_and_is_no_answer():
    """Such as a second answer, which the next request would take for its own."""
    peer = Peer(HELLO, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother", pause=0.05)
    async with wire_to(peer) as wire:
        assert await asked(wire) == (200, b"hello")
        await asyncio.sleep(0.1)
        assert await asked(wire) == (200, b"hello")
    assert peer.connections == 2


async def test_two_answers_in_one_piece_are_no_answer_to_the_next():
    peer = Peer(HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")
    async with wire_to(peer) as wire:
        for _ in range(3):
            assert await asked(wire) == (200, b"hello")


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used():
    peer = Peer(HELLO, keep=False)
    async with wire_to(peer) as wire:
        for _ in range(3):
            assert await asked(wire) == (200, b"hello")
            await asyncio.sleep(0.02)
    assert peer.connections == 3


async def test_a_long_body_is_read_in_whole_or_as_far_as_it_is_wanted():
    body = bytes(range(256)) * 40_000
    peer = Peer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    async with wire_to(peer) as wire:
        assert await asked(wire) == (200, body)
        assert await asked(wire, 1000) == (200, body[:1000])
        assert await asked(wire) == (200, body)
    assert peer.connections == 2  # the second was not read to its end


async def test_a_server_that_is_faster_than_its_reader_waits():
    sent = 0

    async def endless(_reader, writer):
        nonlocal sent
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
    async with wire_to(peer) as wire:
        link = await link_of(wire)
        link.ask(ASKED)
        await link.begun()
        await asyncio.sleep(0.3)
        before = sent
        assert before < 30 * 2**20
        await asyncio.sleep(0.2)
        assert sent == before
        while sent == before:
            assert await link.piece()
            await asyncio.sleep(0)
        wire.done(link)


async def test_no_more_connections_than_allowed_and_whoever_gives_up_leaves_no_trace():
    peer = Peer(b"", HELLO, pause=0.05)
    async with wire_to(peer, most=2) as wire:
        calls = [asyncio.create_task(asked(wire)) for _ in range(10)]
        await asyncio.sleep(0.01)
        for call in (calls[0], calls[5]):
            call.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(each == (200, b"hello") for each in found) == 8
        assert peer.connections <= 3
        held = [await link_of(wire) for _ in range(2)]
        with pytest.raises(TimeoutError):
            await link_of(wire, 0.05)
        for link in held:
            wire.done(link)
        assert await asked(wire) == (200, b"hello")


async def test_connections_that_nobody_uses_are_closed():
    peer = Peer(HELLO)
    async with wire_to(peer, idle=0.1) as wire:
        await asyncio.gather(*(asked(wire) for _ in range(3)))
        assert peer.connections == 3
        await asyncio.sleep(0.3)
        assert peer.ended == 3
        assert await asked(wire) == (200, b"hello")


async def test_a_retired_wire_ends_what_is_under_way_in_peace_and_keeps_nothing():
    peer = Peer(b"", HELLO, pause=0.05)
    async with wire_to(peer) as wire:
        call = asyncio.create_task(asked(wire))
        await asyncio.sleep(0.02)
        wire.retire()
        assert await call == (200, b"hello")
        await asyncio.sleep(0.1)
        assert peer.ended == 1


async def test_nobody_there_is_an_error_before_anything_is_sent():
    peer = Peer()
    async with wire_to(peer) as wire:
        pass
    with pytest.raises(ConnectionRefusedError):
        await link_of(wire)

"""The extender's listener: kube-scheduler's own requests are answered here, all others by aiohttp.

kube-scheduler asks three times for every pod, always in the same plain form, and on a busy cluster reading
HTTP in Python costs as much as all decisions together. So a POST with a length and nothing unusual is read
here; at the first request that is anything else the connection is handed to aiohttp, for good.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, cast

Answer = tuple[int, bytes]
"""Status and body, in JSON."""
Verb = Callable[[bytes], Answer | Awaitable[Answer]]

LONGEST_HEAD = 8192
_END = b"\r\n\r\n"
_PLAIN = frozenset(
    {b"host", b"user-agent", b"content-length", b"content-type", b"accept-encoding", b"accept"}
)
"""Headers that change nothing about how the request is read or answered."""


class _Head(NamedTuple):
    path: str
    length: int


@lru_cache(maxsize=256)
def _read_head(head: bytes, longest: int) -> _Head | None:
    """None if it is anything but a plain POST. Most differ in their length alone, and that not by much."""
    first, *fields = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[0] != b"POST" or words[2] != b"HTTP/1.1" or not words[1].isascii():
        return None
    length = None
    for field in fields:
        name, colon, value = field.partition(b":")
        name = name.lower()
        if not colon or name not in _PLAIN:
            return None
        if name == b"content-length":
            text = value.strip(b" \t")
            if length is not None or not text.isdigit() or len(text) > 12:
                return None
            length = int(text)
    return None if length is None or length > longest else _Head(words[1].decode("ascii"), length)


@lru_cache(maxsize=16)
def _head(status: int, *, last: bool) -> bytes:
    ending = "Connection: close\r\n" if last else ""
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n{ending}".encode("ascii")


def _written(status: int, body: bytes, *, last: bool) -> bytes:
    return b"%bContent-Length: %d\r\n\r\n%b" % (_head(status, last=last), len(body), body)


class _Connection(asyncio.Protocol):
    """One at a time: what arrives while a request is being answered waits."""

    def __init__(self, front: FastHttp) -> None:
        self._front = front
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._arrived = 0
        self._needed = 0
        """Bytes without which it is of no use to look again."""
        self._answering: asyncio.Future[Answer] | None = None
        self._other: asyncio.Protocol | None = None
        """aiohttp's, once it has taken over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._front.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._front.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._arrived += len(data)
        if self._answering is None and self._arrived >= self._needed:
            self._look()
        elif self._arrived > self._front.longest + LONGEST_HEAD and self._transport is not None:
            self._transport.abort()  # nobody sends so much before the answer is there

    def _look(self) -> None:
        """Answer what is here in whole."""
        while self._transport is not None and self._answering is None and self._arrived:
            data = b"".join(self._pieces)
            self._pieces = [data]
            end = data.find(_END, 0, LONGEST_HEAD)
            if end < 0 and len(data) < LONGEST_HEAD and data[:5] == b"POST "[: len(data)]:
                return
            head = _read_head(data[:end], self._front.longest) if end >= 0 else None
            verb = self._front.verbs.get(head.path) if head is not None else None
            if head is None or verb is None:
                self._hand_over(data)
                return
            start = end + len(_END)
            self._needed = start + head.length
            if len(data) < self._needed:
                return
            rest = data[self._needed :]
            self._pieces, self._arrived, self._needed = [rest] if rest else [], len(rest), 0
            self._answer(verb, data[start : start + head.length])

    def _answer(self, verb: Verb, body: bytes) -> None:
        answer = verb(body)
        if isinstance(answer, tuple):
            self._write(answer)
            return
        self._answering = asyncio.ensure_future(answer)
        self._front.answering.add(self._answering)
        self._answering.add_done_callback(self._answered)

    def _answered(self, answering: asyncio.Future[Answer]) -> None:
        self._front.answering.discard(answering)
        self._answering = None
        if self._transport is None:
            return
        if answering.cancelled() or answering.exception() is not None:
            self._transport.abort()
            return
        self._write(answering.result())
        self._look()

    def _write(self, answer: Answer) -> None:
        """After a 503 the connection ends: a kept one would lead here again, and not to who leads now."""
        status, body = answer
        last = status == HTTPStatus.SERVICE_UNAVAILABLE or self._front.closing
        if self._transport is not None:
            self._transport.write(_written(status, body, last=last))
            if last:
                self._transport.close()
                self._transport = None

    def _hand_over(self, data: bytes) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None  # noqa: S101
        self._front.connections.discard(self)
        other = self._front.other()
        transport.set_protocol(other)
        other.connection_made(transport)
        other.data_received(data)

    def close(self) -> None:
        """Nothing new is read; what is being answered still is."""
        if self._transport is not None and self._answering is None:
            self._transport.close()


class FastHttp:
    """`verbs` are by path. `other` makes a protocol for connections that ask anything else."""

    def __init__(
        self, verbs: Mapping[str, Verb], other: Callable[[], asyncio.Protocol], longest: int
    ) -> None:
        self.verbs = verbs
        self.other = other
        self.longest = longest
        """Bytes of a body."""
        self.closing = False
        self.connections: set[_Connection] = set()
        self.answering: set[asyncio.Future[Answer]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, address: str | None, port: int, context: ssl.SSLContext | None) -> int:
        """The port; OSError if it cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), address, port, ssl=context, backlog=1024
        )
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self, patience: float) -> None:
        """What is being answered has so many seconds to end by itself."""
        self.closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        answering = set(self.answering)
        if answering:
            await asyncio.wait(answering, timeout=patience)
            for each in answering:
                each.cancel()
            await asyncio.wait(answering)

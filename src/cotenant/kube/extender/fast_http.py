"""Answers kube-scheduler's own HTTP requests to the extender; hands all other connections to aiohttp.

kube-scheduler sends two or three requests for every pod, always in the same plain form, and on a busy cluster
reading HTTP in Python costs as much as all decisions together. So a POST with a Content-Length and no unusual
header is read here. At the first request that is anything else, aiohttp takes over the connection for good.

Heads are parsed by hand: llhttp (httptools) is slower for heads as short as these (`docs/adr/0014`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, cast

Answer = tuple[int, bytes]
"""Status and JSON body."""
Verb = Callable[[bytes], Answer | Awaitable[Answer]]

LONGEST_HEAD = 8192
"""Bytes."""
_END = b"\r\n\r\n"
_PLAIN = frozenset(
    {b"host", b"user-agent", b"content-length", b"content-type", b"accept-encoding", b"accept"}
)
"""Headers that do not change how the request is read or answered."""


class _Head(NamedTuple):
    path: str
    length: int


@lru_cache(maxsize=256)
def _parse_head(head: bytes, longest_body: int) -> _Head | None:
    """Parses the head of a plain POST; None for every other request. Cached: heads differ in their
    Content-Length only, and most of those repeat.
    """
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
    return None if length is None or length > longest_body else _Head(words[1].decode("ascii"), length)


@lru_cache(maxsize=16)
def _response_head(status: int, *, last: bool) -> bytes:
    ending = "Connection: close\r\n" if last else ""
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n{ending}".encode("ascii")


def _response(status: int, body: bytes, *, last: bool) -> bytes:
    return b"%bContent-Length: %d\r\n\r\n%b" % (_response_head(status, last=last), len(body), body)


class _Connection(asyncio.Protocol):
    """Answers one request at a time; data that arrives meanwhile waits."""

    def __init__(self, server: FastHttp) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._arrived = 0
        self._needed = 0
        """Bytes of the request that is arriving; before they are here, parsing it again is of no use."""
        self._answering: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._arrived += len(data)
        if self._answering is None and self._arrived >= self._needed:
            self._parse()
        elif self._arrived > self._server.longest + LONGEST_HEAD and self._transport is not None:
            self._transport.abort()  # no client sends that much before it has the answer

    def _parse(self) -> None:
        """Answers every request that has arrived completely."""
        while self._transport is not None and self._answering is None and self._arrived:
            data = b"".join(self._chunks)
            self._chunks = [data]
            end = data.find(_END, 0, LONGEST_HEAD)
            if end < 0 and len(data) < LONGEST_HEAD and data[:5] == b"POST "[: len(data)]:
                return
            head = _parse_head(data[:end], self._server.longest) if end >= 0 else None
            verb = self._server.verbs.get(head.path) if head is not None else None
            if head is None or verb is None:
                self._hand_over(data)
                return
            start = end + len(_END)
            self._needed = start + head.length
            if len(data) < self._needed:
                return
            rest = data[self._needed :]
            self._chunks, self._arrived, self._needed = [rest] if rest else [], len(rest), 0
            self._answer(verb, data[start : start + head.length])

    def _answer(self, verb: Verb, body: bytes) -> None:
        answer = verb(body)
        if isinstance(answer, tuple):
            self._write(answer)
            return
        self._answering = asyncio.ensure_future(answer)
        self._server.answering.add(self._answering)
        self._answering.add_done_callback(self._answered)

    def _answered(self, answering: asyncio.Future[Answer]) -> None:
        self._server.answering.discard(answering)
        self._answering = None
        if self._transport is None:
            return
        if answering.cancelled() or answering.exception() is not None:
            self._transport.abort()
            return
        self._write(answering.result())
        self._parse()

    def _write(self, answer: Answer) -> None:
        """Closes the connection after a 503: the next request must be able to reach the leader."""
        status, body = answer
        last = status == HTTPStatus.SERVICE_UNAVAILABLE or self._server.closing
        if self._transport is not None:
            self._transport.write(_response(status, body, last=last))
            if last:
                self._transport.close()
                self._transport = None

    def _hand_over(self, data: bytes) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None  # noqa: S101
        self._server.connections.discard(self)
        other = self._server.other()
        transport.set_protocol(other)
        other.connection_made(transport)
        other.data_received(data)

    def close(self) -> None:
        """Closes the connection unless a request is being answered."""
        if self._transport is not None and self._answering is None:
            self._transport.close()


class FastHttp:
    """Listens for kube-scheduler. `verbs` are by path; `other` makes the protocol that serves every other
    connection.
    """

    def __init__(
        self, verbs: Mapping[str, Verb], other: Callable[[], asyncio.Protocol], longest: int
    ) -> None:
        self.verbs = verbs
        self.other = other
        self.longest = longest
        """Bytes of the longest body that is read here."""
        self.closing = False
        self.connections: set[_Connection] = set()
        self.answering: set[asyncio.Future[Answer]] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, address: str | None, port: int, context: ssl.SSLContext | None) -> int:
        """Starts to listen and returns the port; OSError if it is not available."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Connection(self), address, port, ssl=context, backlog=1024
        )
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    async def close(self, patience: float) -> None:
        """Stops listening. Requests that are being answered have `patience` seconds to complete."""
        self.closing = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.close()
        answering = set(self.answering)
        if answering:
            await asyncio.wait(answering, timeout=patience)
            for each in answering:
                each.cancel()
            await asyncio.wait(answering)

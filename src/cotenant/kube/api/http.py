"""HTTP/1.1 to one server: connections that are kept, and one exchange at a time on each.

Only what an API server is asked and answers: no redirects, no cookies, no compression.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import cast

import httptools
from aiohappyeyeballs import start_connection

_MOST_UNREAD = 1 << 20
"""Bytes after which the server is left waiting until somebody asks for more."""
_NEXT_ADDRESS = 0.25
"""Seconds after which another address of the host is tried as well."""


class Broken(Exception):
    """The connection ended, or what came over it is no HTTP, before the answer was there in whole."""


class HttpConnection(asyncio.Protocol):
    """One connection. The parser calls the methods `on_...`."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """Of the answer, with names in lower case; both are there after `begun`."""
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._under_way = False
        self._ended = False
        self._framed = False
        """Whether the answer says where it ends; otherwise it ends with the connection."""
        self._reusable = False
        """Whether the server will hear another request after this answer."""
        self._pieces: list[bytes] = []
        self._unread = 0
        self._paused = False
        self._broken = ""
        self._turned: asyncio.Future[None] | None = None

    def ask(self, request: bytes) -> None:
        """From here on the server may have the request, whatever happens to the connection."""
        self.status, self.headers = 0, {}
        self._under_way, self._ended, self._framed, self._reusable = True, False, False, False
        self._pieces, self._unread = [], 0
        if self._transport is not None:
            self._transport.write(request)

    async def begun(self) -> None:
        """Until status and headers are there; Broken here and below."""
        while not self.status:
            await self._more()

    async def whole(self, most: int | None = None) -> bytes:
        """The body, or so many bytes of it."""
        while not self._ended and (most is None or self._unread < most):
            await self._more()
        return b"".join(self._pieces)[:most]

    async def piece(self) -> bytes:
        """What has come of the body since the last; empty at its end."""
        while not self._pieces and not self._ended:
            await self._more()
        data = b"".join(self._pieces)
        self._pieces, self._unread = [], 0
        return data

    @property
    def usable(self) -> bool:
        """Whether it may be asked again."""
        return self._ended and self._reusable and self.connected

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        if self._broken:
            raise Broken(self._broken)
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        self._turned = asyncio.get_running_loop().create_future()
        await self._turned

    def _turn(self) -> None:
        if self._turned is not None and not self._turned.done():
            self._turned.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._broken = self._broken or (type(exc).__name__ if exc is not None else "closed")
        if self.status and not self._framed and exc is None:
            self._ended = True
        self._turn()

    def data_received(self, data: bytes) -> None:
        if not self._under_way:
            self.close()  # nobody has asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._broken = "no HTTP"
            self.close()
        if self._unread > _MOST_UNREAD and not (self._paused or self._ended) and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._turn()

    def on_message_begin(self) -> None:
        if self._ended:
            raise Broken("an answer that nobody has asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers[name] = value
        if name in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:
            self.headers, self._framed = {}, False  # "100 Continue" and the like: the answer is still to come

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self._under_way, self._ended = False, True
            self._framed = True
            self._reusable = self._parser.should_keep_alive()


class HttpPool:
    """The connections to one host. OSError, ssl.SSLError and TimeoutError say that there is none."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: tuple[ssl.SSLContext, str] | None,
        *,
        within: float,
        idle: float,
        most: int,
    ) -> None:
        """`tls` is with the name that the server's certificate must have. A connection must stand `within`
        so many seconds, is closed after `idle` ones without use, and there are never more than `most`.
        """
        self._host, self._port = host, port
        self._tls = tls
        self._within = within
        self._idle_seconds = idle
        self._free = asyncio.Semaphore(most)
        self._idle: deque[tuple[float, HttpConnection]] = deque()
        """The one that was used last is the last."""
        self._busy: set[HttpConnection] = set()
        self._tidying: asyncio.TimerHandle | None = None
        self._closed = False

    async def link(self, ends: float) -> HttpConnection:
        """One that nobody else uses, until it is given to `done`. There must be one before `ends`, by the
        loop's clock.
        """
        if asyncio.get_running_loop().time() >= ends:
            raise TimeoutError
        if not self._free.locked() and (link := self._kept()) is not None:
            await self._free.acquire()  # at once
        else:
            async with asyncio.timeout_at(ends):
                link = await self._another()
        self._busy.add(link)
        return link

    async def _another(self) -> HttpConnection:
        await self._free.acquire()
        try:
            return self._kept() or await self._connect()
        except BaseException:
            self._free.release()
            raise

    def _kept(self) -> HttpConnection | None:
        while self._idle:
            _, link = self._idle.pop()
            if link.connected:
                return link
        return None

    def done(self, link: HttpConnection) -> None:
        self._busy.discard(link)
        self._free.release()
        if self._closed or not link.usable:
            link.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), link))
        if self._tidying is None:
            self._tidying = loop.call_later(self._idle_seconds, self._tidy)

    def retire(self) -> None:
        """No connection is kept any more; those in use end when they are done."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
        while self._idle:
            self._idle.pop()[1].close()

    async def close(self) -> None:
        self.retire()
        for link in self._busy:
            link.close()
        await asyncio.sleep(0)  # the loop closes them

    async def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._within):
            addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS)
            try:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                context, name = self._tls or (None, None)
                _, link = await loop.create_connection(
                    HttpConnection, sock=connected, ssl=context, server_hostname=name
                )
            except BaseException:
                connected.close()
                raise
        return link

    def _tidy(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][0] + self._idle_seconds <= loop.time() + 0.001:
            self._idle.popleft()[1].close()
        self._tidying = None
        if self._idle:
            self._tidying = loop.call_at(self._idle[0][0] + self._idle_seconds, self._tidy)

"""One HTTP/1.1 client connection, read by llhttp (httptools), with one exchange at a time.

Only what an API server needs: no redirects, no cookies, no compression.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from cotenant.kube.api.http.request import CONNECTION_BROKE, NOT_IN_TIME, BrokenExchange

_MAX_UNREAD = 1 << 20
"""Bytes that are buffered before reading from the socket pauses."""


class HttpConnection(asyncio.Protocol):
    """A connection, and the response to the last request on it. The parser calls the methods `on_...`.

    `release` is called with the connection when the caller has finished with the response.
    """

    def __init__(self, release: Callable[[HttpConnection], None]) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """Of the response, with names in lower case. Set, as `status` is, after `receive_head`."""
        self._release = release
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchanging = False
        self._complete = False
        self._framed = False
        """Whether the response says where it ends; otherwise it ends with the connection."""
        self._keep_alive = False
        """Whether the server accepts another request after this response."""
        self._chunks: list[bytes] = []
        self._unread = 0
        self._paused = False
        self._lost = False
        self._progress: asyncio.Future[None] | None = None

    def send(self, request: bytes) -> None:
        """Writes the request. From here on the server may have it, whatever happens to the connection."""
        self.status, self.headers = 0, {}
        self._exchanging, self._complete, self._framed, self._keep_alive = True, False, False, False
        self._chunks, self._unread = [], 0
        if self._transport is not None:
            self._transport.write(request)

    async def receive_head(self) -> None:
        """Waits for status and headers."""
        while not self.status:
            await self._wait()

    @property
    def retry_after(self) -> str:
        return self.headers.get(b"retry-after", b"").decode("latin-1")

    async def read(self, deadline: float, limit: int | None = None) -> bytes:
        """Returns the body, or its first `limit` bytes. `deadline` is by the loop's clock. The connection
        keeps nothing of it: it may be idle for long.
        """
        if not self._complete:  # a short body has come together with the headers
            try:
                async with asyncio.timeout_at(deadline):
                    while not self._complete and (limit is None or self._unread < limit):
                        await self._wait()
            except TimeoutError:
                raise BrokenExchange(NOT_IN_TIME) from None
        data = b"".join(self._chunks)[:limit]
        self._chunks, self._unread = [], 0
        return data

    async def chunk(self) -> bytes:
        """Returns what has come of the body since the last call; empty at its end."""
        while not self._chunks and not self._complete:
            await self._wait()
        data = b"".join(self._chunks)
        self._chunks, self._unread = [], 0
        return data

    def release(self) -> None:
        self._release(self)

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._complete and self._keep_alive and self.connected

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._lost:
            raise BrokenExchange(CONNECTION_BROKE)
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        self._progress = asyncio.get_running_loop().create_future()
        await self._progress

    def _wake(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.status and not self._framed and exc is None and not self._lost:
            self._complete = True
        self._lost = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        if not self._exchanging:
            self.close()  # nothing was requested
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._lost = True
            self.close()
        if (
            self._unread > _MAX_UNREAD
            and not (self._paused or self._complete)
            and self._transport is not None
        ):
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_begin(self) -> None:
        if self._complete:
            raise BrokenExchange("a response without a request")

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
            self.headers, self._framed = {}, False  # such as "100 Continue": the response follows

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self._exchanging, self._complete = False, True
            self._framed = True
            self._keep_alive = self._parser.should_keep_alive()

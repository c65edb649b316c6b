"""Sends requests straight to the API server, over pooled HTTP/1.1 connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque

from aiohappyeyeballs import start_connection

from cotenant.kube.api.http.http1 import HttpConnection
from cotenant.kube.api.http.request import NOT_IN_TIME, BrokenExchange, Request

_HAPPY_EYEBALLS_DELAY = 0.25
"""Seconds after which the next address of the host is tried as well."""


class DirectTransport:
    """Pools the connections to one host."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: tuple[ssl.SSLContext, str] | None,
        *,
        host_header: str,
        connect_seconds: float,
        idle_seconds: float,
        max_connections: int,
    ) -> None:
        """`tls` is a context with the name that the server's certificate must have. `connect_seconds` limits
        the time to connect, with TLS; a connection without use is closed after `idle_seconds`.
        """
        self._host, self._port = host, port
        self._tls = tls
        self._host_header = host_header
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._free = asyncio.Semaphore(max_connections)
        self._idle: deque[tuple[float, HttpConnection]] = deque()
        """With the time of last use; the most recently used is the last."""
        self._busy: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._retired = False
        self._encoded: tuple[tuple[tuple[str, str], ...], bytes] = (), b""
        """The headers of the last request, and their bytes."""

    async def send(self, request: Request, deadline: float) -> HttpConnection:
        """Sends the request and waits for the head of the response, which must come before `deadline`, by the
        loop's clock. The caller releases the response.
        """
        data = self._encode(request)
        if asyncio.get_running_loop().time() >= deadline:
            raise TimeoutError
        if not self._free.locked() and (idle := self._take_idle()) is not None:
            await self._free.acquire()  # at once
            connection = idle
        else:
            async with asyncio.timeout_at(deadline):
                connection = await self._wait_for_connection()
        self._busy.add(connection)
        try:
            async with asyncio.timeout_at(deadline):
                connection.send(data)
                await connection.receive_head()
        except TimeoutError:
            self._release(connection)
            raise BrokenExchange(NOT_IN_TIME) from None
        except BaseException:
            self._release(connection)
            raise
        return connection

    def _encode(self, request: Request) -> bytes:
        if self._encoded[0] is not request.headers:
            headers = (("Host", self._host_header), *request.headers)
            text = "".join(f"{name}: {value}\r\n" for name, value in headers)
            self._encoded = request.headers, text.encode()
        first = f"{request.method} {request.target} HTTP/1.1\r\n".encode("ascii")
        if request.body is None:
            return b"".join((first, self._encoded[1], b"\r\n"))
        body = request.body
        own = f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode("ascii")
        return b"".join((first, self._encoded[1], own, body))

    async def _wait_for_connection(self) -> HttpConnection:
        """Returns a connection that nothing else uses until it is released."""
        await self._free.acquire()
        try:
            return self._take_idle() or await self._connect()
        except BaseException:
            self._free.release()
            raise

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            _, connection = self._idle.pop()
            if connection.connected:
                return connection
        return None

    def _release(self, connection: HttpConnection) -> None:
        self._busy.discard(connection)
        self._free.release()
        if self._retired or not connection.reusable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), connection))
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds, self._close_idle)

    def retire(self) -> None:
        """Closes idle connections now, and each other one when its response is released."""
        self._retired = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._idle:
            self._idle.pop()[1].close()

    async def close(self) -> None:
        """Closes all connections; exchanges under way break."""
        self.retire()
        for connection in self._busy:
            connection.close()
        await asyncio.sleep(0)  # the event loop closes them

    async def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_seconds):
            addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            try:
                connected = await start_connection(addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY)
            except RuntimeError as error:
                # uvloop takes the descriptor for one that is in use, after connections that were cancelled
                # (MagicStack/uvloop#653). Another try gets another one.
                raise OSError(str(error)) from error
            try:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                context, name = self._tls or (None, None)
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self._release), sock=connected, ssl=context, server_hostname=name
                )
            except BaseException:
                connected.close()
                raise
        return connection

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][0] + self._idle_seconds <= loop.time() + 0.001:
            self._idle.popleft()[1].close()
        self._sweep = None
        if self._idle:
            self._sweep = loop.call_at(self._idle[0][0] + self._idle_seconds, self._close_idle)

"""Sends requests to the API server through an HTTP or HTTPS proxy, with aiohttp.

Imported only where a proxy is configured: aiohttp's client costs start-up time and memory. An error of
aiohttp carries the request's headers, so none of them leaves this module, not even as the context of ours.
"""

from __future__ import annotations

import asyncio
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from cotenant.kube.api.auth.proxy import Proxy
from cotenant.kube.api.http.request import (
    CONNECTION_BROKE,
    NOT_IN_TIME,
    BrokenExchange,
    ProxyRefused,
    Request,
)

_LONGEST_REASON = 80
"""Characters of what a proxy says when it refuses."""


class _Connector(aiohttp.TCPConnector):
    """Pools connections, but reuses none on which something has arrived that was not requested: aiohttp would
    take it for the response to the next request. `test_http.py` fails if this method is no longer called.
    """

    async def _get(self, key: Any, traces: Any) -> Any:
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        return None


class ProxiedResponse:
    """A response whose head has arrived."""

    def __init__(self, transport: ProxiedTransport, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After", "")
        self._transport = transport
        self._response = response

    async def read(self, deadline: float, limit: int | None = None) -> bytes:
        """Returns the body, or its first `limit` bytes. `deadline` is by the loop's clock."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout_at(deadline):
                while (limit is None or size < limit) and (chunk := await self.chunk()):
                    chunks.append(chunk)
                    size += len(chunk)
        except TimeoutError:
            raise BrokenExchange(NOT_IN_TIME) from None
        return b"".join(chunks)[:limit]

    async def chunk(self) -> bytes:
        """Returns what has come of the body since the last call; empty at its end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, ValueError):
            pass
        raise BrokenExchange(CONNECTION_BROKE)

    def release(self) -> None:
        if not self._response.content.at_eof():
            self._response.close()  # the rest of the body would be taken for the next response
        self._transport.finish()


class ProxiedTransport:
    """Pools the connections to one server through one proxy."""

    def __init__(
        self,
        origin: str,
        tls: tuple[ssl.SSLContext, str] | None,
        proxy: Proxy,
        *,
        connect_seconds: float,
        idle_seconds: float,
        max_connections: int,
    ) -> None:
        """`origin` is `https://host:port`. See `DirectTransport` for the others; `connect_seconds` includes
        the proxy's answer to CONNECT.
        """
        self._origin = origin
        self._context = None if tls is None else tls[0]
        self._server_name = None if tls is None else tls[1]
        self._proxy = URL(proxy.url)
        self._proxy_headers = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else None
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_seconds)
        self._idle_seconds = idle_seconds
        self._free = asyncio.Semaphore(max_connections)
        self._exchanges = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request, deadline: float) -> ProxiedResponse:
        """Sends the request and waits for the head of the response, which must come before `deadline`, by the
        loop's clock. The caller releases the response.
        """
        if asyncio.get_running_loop().time() >= deadline:
            raise TimeoutError
        self._exchanges += 1  # also while it waits: a retired transport must not close before its turn
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except BaseException:
            self._uncount()
            raise
        try:
            return ProxiedResponse(self, await self._exchange(request, deadline))
        except BaseException:
            self.finish()
            raise

    async def _exchange(self, request: Request, deadline: float) -> aiohttp.ClientResponse:
        session = self._open()
        if session.closed:
            # aiohttp would raise RuntimeError, which no caller expects.
            raise OSError(None, "the client was closed")
        progress = SimpleNamespace(connected=False)
        headers = list(request.headers)
        if self._context is None and self._proxy_headers is not None:
            headers += self._proxy_headers.items()  # without TLS there is no CONNECT to carry it
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        try:
            async with asyncio.timeout_at(deadline):
                return await session.request(
                    request.method,
                    URL(self._origin + request.target, encoded=True),
                    headers=headers,
                    data=request.body,
                    allow_redirects=False,
                    proxy=self._proxy,
                    proxy_headers=self._proxy_headers,
                    ssl=self._context or True,
                    server_hostname=self._server_name,
                    timeout=self._timeout,
                    trace_request_ctx=progress,
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _sent(error) if progress.connected else _not_sent(error)
        # Outside of the `except`: there, aiohttp's error would become the context of ours.
        raise failure

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_create_end.append(_connected)
            trace.on_connection_reuseconn.append(_connected)
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=self._idle_seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trace_configs=[trace],
            )
            # Otherwise aiohttp sends GET, PUT and DELETE again if a pooled connection breaks, even after the
            # server has received them. Our client decides what is sent again. `test_http.py` fails if this
            # has no effect.
            self._session._retry_connection = False  # noqa: SLF001
        return self._session

    def finish(self) -> None:
        """Ends one exchange."""
        self._free.release()
        self._uncount()

    def _uncount(self) -> None:
        self._exchanges -= 1
        self._close_if_unused()

    def retire(self) -> None:
        """Closes all connections as soon as no request is under way or waits for a connection."""
        self._retired = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._retired and not self._exchanges and self._session is not None and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._session.close())

    async def close(self) -> None:
        """Closes all connections; exchanges under way break, and requests that wait are not sent."""
        self._retired = True
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # the event loop closes them


async def _connected(_session: Any, context: SimpleNamespace, _parameters: Any) -> None:
    context.trace_request_ctx.connected = True


def _sent(error: Exception) -> BrokenExchange:
    return BrokenExchange(NOT_IN_TIME if isinstance(error, TimeoutError) else CONNECTION_BROKE)


def _not_sent(error: Exception) -> OSError:
    """The error of the system or of TLS that kept us from connecting."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        reason = "".join(letter for letter in error.message if letter.isprintable())
        return ProxyRefused(error.status, reason[:_LONGEST_REASON])
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause: Exception = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    else:
        cause = error
    if isinstance(cause, TimeoutError):
        return TimeoutError()
    if isinstance(cause, ssl.SSLError) or (isinstance(cause, OSError) and cause.strerror):
        return cause
    return OSError(None, "the proxy closed the connection")

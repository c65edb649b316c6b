"""HTTP to one API server: credentials, TLS, timeouts, retries, and errors of our own.

This is the only file of the client that knows the HTTP library.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from cotenant.kube.access import Access
from cotenant.kube.backoff import Backoff
from cotenant.kube.credentials import Credential
from cotenant.kube.errors import (
    KubeError,
    ServerFailed,
    Silent,
    TooManyRequests,
    Unreachable,
    Untrusted,
    failure_from_body,
)
from cotenant.kube.tls import client_context


@dataclass(frozen=True)
class ConnectionSettings:
    """Times are in seconds."""

    connect: float = 5.0
    """To a connection with TLS."""
    request: float = 15.0
    """For one call with all its retries, unless the call says otherwise."""
    first_pause: float = 0.1
    longest_pause: float = 2.0
    """Between retries; jittered."""
    idle: float = 30.0
    """An unused connection is closed after this: sooner than API servers do, so that a write seldom meets a
    connection that is just being closed."""
    connections: int = 64


@dataclass(frozen=True)
class Call:
    """One request."""

    asked: str
    """For messages: `get pods web/front`."""
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = False
    """Whether doing it twice is as good as once. Any call is retried if it was surely not carried out."""
    retry: bool = True
    within: float | None = None


class Connection:
    """Pools connections; `random` draws jitter, `clock` is monotonic."""

    def __init__(
        self,
        access: Access,
        settings: ConnectionSettings | None = None,
        *,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access = access
        self.settings = settings or ConnectionSettings()
        self._random = random or Random()
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[tuple[bytes, bytes, bytes], ssl.SSLContext] | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(self, call: Call) -> bytes:
        """The body of a successful answer, within the call's time."""
        ends = self._clock() + (call.within or self.settings.request)
        backoff = Backoff(self.settings.first_pause, self.settings.longest_pause, self._random)
        while True:
            left = ends - self._clock()
            limits = aiohttp.ClientTimeout(total=max(left, 0.001), sock_connect=self.settings.connect)
            try:
                response = await self._respond(call, limits, {"timeout": f"{max(left, 1):.0f}s"})
                with self._translated(call):
                    async with response:
                        return await response.read()
            except KubeError as error:
                pause = backoff.next(error.retry_after)
                if not _may_retry(call, error) or self._clock() + pause >= ends:
                    raise
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(self, call: Call, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Pieces of the body as they arrive. After `silence` seconds without any, Silent."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect, sock_read=silence)
        response = await self._respond(call, limits, {})
        async with response:
            yield self._pieces(call, response)

    async def _pieces(self, call: Call, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        while True:
            with self._translated(call):
                try:
                    piece = await response.content.readany()
                except aiohttp.SocketTimeoutError:
                    raise Silent(f"{call.asked}: {Silent.said}") from None
            if not piece:
                return
            yield piece

    async def _respond(
        self, call: Call, limits: aiohttp.ClientTimeout, query: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """A successful answer, not yet read. A credential that is rejected is replaced once, if it can be: a
        rejected request was not carried out.
        """
        credentials = self.access.credentials
        credential = await credentials.current()
        response = await self._send(call, credential, limits, query)
        if response.status == 401:
            credentials.rejected(credential)
            fresh = await credentials.current()
            if fresh != credential:
                response.close()
                response = await self._send(call, fresh, limits, query)
        if response.status < 300:
            return response
        with self._translated(call):
            async with response:
                body = await response.content.read(1 << 16)
        raise failure_from_body(call.asked, response.status, body, response.headers.get("Retry-After"))

    async def _send(
        self, call: Call, credential: Credential, limits: aiohttp.ClientTimeout, query: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        access = self.access
        headers = CIMultiDict({"Accept": "application/json", "Accept-Encoding": "identity"})
        for name, values in access.headers.items():
            for value in values:
                headers.add(name, value)
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if credential.token:
            headers["Authorization"] = f"Bearer {credential.token}"
        context = self._context(credential)
        with self._translated(call):
            async with asyncio.timeout(limits.total or self.settings.request):
                return await self._opened().request(
                    call.method,
                    URL(f"{access.server}{call.path}?{urlencode({**call.query, **query})}", encoded=True),
                    data=call.body,
                    headers=headers,
                    ssl=context,
                    server_hostname=access.server_name or None,
                    timeout=limits,
                    allow_redirects=False,
                )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self.settings.connections, keepalive_timeout=self.settings.idle, ttl_dns_cache=10
            )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    def _context(self, credential: Credential) -> ssl.SSLContext | bool:
        """One context as long as the certificates are the same; pooled connections go by it."""
        access = self.access
        if not access.server.startswith("https:"):
            return True
        authority = access.authority.read() if access.authority is not None else b""
        key = (authority, credential.certificate, credential.key)
        if self._tls is None or self._tls[0] != key:
            self._tls = key, client_context(authority, access.verify, credential.certificate, credential.key)
        return self._tls[1]

    @contextmanager
    def _translated(self, call: Call) -> Iterator[None]:
        """Errors of the HTTP library, some of which carry our headers, become ours."""
        to = f"{call.asked}: {Unreachable.said} from {self.access.server}"
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or "certificate verify failed"
            raise Untrusted(f"{call.asked}: {Untrusted.said}: {self.access.server}: {why}") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(f"{to}: {_no_connection(error)}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = "not in time" if isinstance(error, TimeoutError) else "the connection broke"
            raise Unreachable(f"{to}: {why}", uncertain=call.method != "GET") from None


def _no_connection(error: aiohttp.ClientError) -> str:
    cause = getattr(error, "os_error", None)
    if not isinstance(cause, OSError):
        return "no connection in time"
    number = cause.errno or 0
    return os.strerror(number) if number > 0 else cause.strerror or "no connection"


def _may_retry(call: Call, error: KubeError) -> bool:
    if not call.retry or isinstance(error, Untrusted):
        return False
    if isinstance(error, TooManyRequests):
        return True
    return isinstance(error, Unreachable | ServerFailed) and (call.repeatable or not error.uncertain)

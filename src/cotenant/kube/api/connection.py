"""Calls to one API server: credentials, TLS, timeouts, retries, and errors of our own."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from urllib.parse import quote, urlencode, urlsplit

from cotenant import __version__
from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.auth.credentials import Credential
from cotenant.kube.api.auth.tls import client_context
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.errors import (
    KubeError,
    ServerFailed,
    Silent,
    TooManyRequests,
    Unreachable,
    Untrusted,
    failure_from_body,
)
from cotenant.kube.api.http import Broken, HttpConnection, HttpPool

_LONGEST_FAILURE = 1 << 16
"""Bytes of an answer that says what went wrong."""


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
        self._server = urlsplit(access.server)
        self._path = quote(self._server.path, safe="/%:@!$&'()*+,;=~")
        self._wire: tuple[tuple[bytes, bytes, bytes], HttpPool] | None = None
        """With the certificates that it was made with."""
        self._headers: tuple[str, bytes] | None = None
        """The same in all requests with that token."""

    async def close(self) -> None:
        if self._wire is not None:
            await self._wire[1].close()
            self._wire = None

    async def request(self, call: Call) -> bytes:
        """The body of a successful answer, within the call's time."""
        ends = self._clock() + (call.within or self.settings.request)
        backoff = Backoff(self.settings.first_pause, self.settings.longest_pause, self._random)
        while True:
            left = max(ends - self._clock(), 0.001)
            query = {**call.query, "timeout": f"{max(left, 1):.0f}s"}
            try:
                return (await self._respond(call, query, left)).body
            except KubeError as error:
                pause = backoff.next(error.retry_after)
                if not _may_retry(call, error) or self._clock() + pause >= ends:
                    raise
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(self, call: Call, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Pieces of the body as they arrive. After `silence` seconds without any, Silent."""
        within = min(self.settings.request, silence)
        answer = await self._respond(call, call.query, within, whole=False)
        try:
            yield self._pieces(call, answer.link, silence)
        finally:
            answer.wire.done(answer.link)

    async def _pieces(self, call: Call, link: HttpConnection, silence: float) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(silence):
                    piece = await link.piece()
            except TimeoutError:
                raise Silent(f"{call.asked}: {Silent.said}") from None
            except Broken:
                raise self._no_answer(call, "the connection broke") from None
            if not piece:
                return
            yield piece

    async def _respond(
        self, call: Call, query: Mapping[str, str], within: float, *, whole: bool = True
    ) -> _Answer:
        """A successful answer. A credential that is rejected is replaced once, if it can be: a rejected
        request was not carried out.
        """
        ends = asyncio.get_running_loop().time() + within
        credentials = self.access.credentials
        credential = await credentials.current()
        answer = await self._send(call, query, credential, ends, whole=whole)
        if answer.status == 401:
            credentials.rejected(credential)
            fresh = await credentials.current()
            if fresh != credential:
                answer = await self._send(call, query, fresh, ends, whole=whole)
        if answer.status >= 300:
            raise failure_from_body(call.asked, answer.status, answer.body, answer.retry_after)
        return answer

    async def _send(
        self, call: Call, query: Mapping[str, str], credential: Credential, ends: float, *, whole: bool
    ) -> _Answer:
        """With its body if it is to be `whole`, or tells a failure; otherwise the link is still in use.
        `ends` is by the loop's clock; after it nothing is sent.
        """
        request = self._written(call, query, credential)
        wire = self._wire_for(credential)
        try:
            link = await wire.link(ends)
        except OSError as error:
            raise self._no_connection(call, error) from None
        in_use = False
        try:
            async with asyncio.timeout_at(ends):
                link.ask(request)
                await link.begun()
                failed = link.status >= 300
                in_use = not (whole or failed)
                body = b"" if in_use else await link.whole(_LONGEST_FAILURE if failed else None)
        except TimeoutError:
            raise self._no_answer(call, "not in time") from None
        except Broken:
            raise self._no_answer(call, "the connection broke") from None
        finally:
            if not in_use:
                wire.done(link)
        return _Answer(wire, link, link.status, link.headers.get(b"retry-after", b"").decode("latin-1"), body)

    def _written(self, call: Call, query: Mapping[str, str], credential: Credential) -> bytes:
        if self._headers is None or self._headers[0] != credential.token:
            self._headers = credential.token, self._same_headers(credential.token)
        first = f"{call.method} {self._path}{call.path}?{urlencode(query)} HTTP/1.1\r\n".encode("ascii")
        if call.body is None:
            return b"".join((first, self._headers[1], b"\r\n"))
        own = f"Content-Type: {call.content_type}\r\nContent-Length: {len(call.body)}\r\n\r\n".encode("ascii")
        return b"".join((first, self._headers[1], own, call.body))

    def _same_headers(self, token: str) -> bytes:
        headers = [
            ("Host", self._server.netloc),
            ("User-Agent", f"cotenant/{__version__}"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            *((name, value) for name, values in self.access.headers.items() for value in values),
        ]
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        return "".join(f"{name}: {value}\r\n" for name, value in headers).encode()

    def _wire_for(self, credential: Credential) -> HttpPool:
        """One as long as the certificates are the same."""
        access, server, settings = self.access, self._server, self.settings
        tls = server.scheme == "https"
        authority = access.authority.read() if tls and access.authority is not None else b""
        key = (authority, credential.certificate, credential.key)
        if self._wire is None or self._wire[0] != key:
            host = server.hostname or ""
            context = client_context(authority, access.verify, *key[1:]) if tls else None
            if self._wire is not None:
                self._wire[1].retire()
            self._wire = (
                key,
                HttpPool(
                    host,
                    server.port or (443 if tls else 80),
                    (context, access.server_name or host.rstrip(".")) if context is not None else None,
                    within=settings.connect,
                    idle=settings.idle,
                    most=settings.connections,
                ),
            )
        return self._wire[1]

    def _no_connection(self, call: Call, error: OSError) -> Unreachable:
        """Nothing has been sent."""
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message or "certificate verify failed"
            return Untrusted(f"{call.asked}: {Untrusted.said}: {self.access.server}: {why}")
        return Unreachable(f"{call.asked}: {Unreachable.said} from {self.access.server}: {_why(error)}")

    def _no_answer(self, call: Call, why: str) -> Unreachable:
        """It may have been carried out."""
        said = f"{call.asked}: {Unreachable.said} from {self.access.server}: {why}"
        return Unreachable(said, uncertain=call.method != "GET")


@dataclass(slots=True)
class _Answer:
    wire: HttpPool
    link: HttpConnection
    status: int
    retry_after: str
    body: bytes


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {(error.reason or 'failed').lower().replace('_', ' ')}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or "no connection"


def _may_retry(call: Call, error: KubeError) -> bool:
    if not call.retry or isinstance(error, Untrusted):
        return False
    if isinstance(error, TooManyRequests):
        return True
    return isinstance(error, Unreachable | ServerFailed) and (call.repeatable or not error.uncertain)

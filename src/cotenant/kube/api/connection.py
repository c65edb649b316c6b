"""Calls one API server: credentials, TLS, time limits, retries, and errors of our own.

What goes over the network is behind `Transport`: our own HTTP/1.1, or aiohttp where there is a proxy.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

from cotenant import __version__
from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.auth.credentials import Credential
from cotenant.kube.api.auth.tls import client_context
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.errors import (
    KubeError,
    NoCredential,
    ProxyDenied,
    ServerFailed,
    Silent,
    TooLong,
    TooManyRequests,
    Unreachable,
    Untrusted,
    failure_from_body,
)
from cotenant.kube.api.http.direct import DirectTransport
from cotenant.kube.api.http.request import BrokenExchange, ProxyRefused, Request

_MAX_FAILURE_BODY = 1 << 16
"""Bytes that are read of a response that explains a failure."""


class Response(Protocol):
    """A response whose head has arrived; `read` or `chunk` give its body. BrokenExchange if it is cut off."""

    @property
    def status(self) -> int: ...

    @property
    def retry_after(self) -> str: ...

    async def read(self, deadline: float, limit: int | None = None) -> bytes: ...

    async def chunk(self) -> bytes: ...

    def release(self) -> None:
        """Gives the connection back; every response must be released once."""


class Transport(Protocol):
    """Sends a request and returns the response when its head has arrived.

    OSError: the request was not sent. BrokenExchange: it may have been carried out. `deadline` is by the
    loop's clock.
    """

    async def send(self, request: Request, deadline: float) -> Response: ...

    def retire(self) -> None:
        """Closes every connection as soon as it is not in use."""

    async def close(self) -> None:
        """Closes every connection now."""


@dataclass(frozen=True)
class ConnectionSettings:
    """Times are in seconds."""

    connect: float = 5.0
    """To establish a connection, with TLS and with a proxy's answer."""
    request: float = 15.0
    """For one call with all its retries, unless the call sets another limit."""
    first_pause: float = 0.1
    longest_pause: float = 2.0
    """Between retries; jittered."""
    idle: float = 30.0
    """An unused connection is closed after this: sooner than API servers do, so that a write seldom meets a
    connection that is just being closed."""
    connections: int = 64


@dataclass(frozen=True)
class Call:
    """One request to the API server, and how to retry it."""

    asked: str
    """For messages: `get pods web/front`."""
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = False
    """Whether carrying it out twice does the same as once. A call that was surely not carried out is retried
    in any case."""
    retry: bool = True
    within: float | None = None
    limit: int | None = None
    """Bytes that the response may have; a longer one is an error, and is not read to its end."""

    @property
    def must_not_wait(self) -> bool:
        """Whether the call's time includes that for a credential: a write may not be sent after it, because
        its sender may not lead any more. A read may, and its time begins when there is a credential: an exec
        plugin has a limit of its own, and may ask a person to log in.
        """
        return self.within is not None and self.method != "GET"


class Connection:
    """Sends calls with fresh credentials and retries them. `random` draws jitter, `clock` is monotonic."""

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
        self._transport: tuple[tuple[bytes, bytes, bytes], Transport] | None = None
        """With the certificates that it was made with."""
        self._headers: tuple[str, tuple[tuple[str, str], ...]] | None = None
        """With the token that they carry."""

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport[1].close()
            self._transport = None

    async def request(self, call: Call) -> bytes:
        """Returns the body of a successful response. Retries until the call's time is over."""
        if not call.must_not_wait:
            await self.access.credentials.current()
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
        """Yields chunks of the body as they arrive. Raises Silent after `silence` seconds without any."""
        answer = await self._respond(call, call.query, min(self.settings.request, silence), stream=True)
        try:
            yield self._chunks(call, answer.response, silence)
        finally:
            answer.response.release()

    async def _chunks(self, call: Call, response: Response, silence: float) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await response.chunk()
            except TimeoutError:
                raise Silent(f"{call.asked}: {Silent.said}") from None
            except BrokenExchange as error:
                raise self._no_answer(call, error) from None
            if not chunk:
                return
            yield chunk

    async def _respond(
        self, call: Call, query: Mapping[str, str], seconds: float, *, stream: bool = False
    ) -> _Answer:
        """Returns a successful answer. A rejected credential is replaced once, if there is another: a
        rejected request was not carried out.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        credential, deadline = await self._credential(call, deadline)
        answer = await self._send(call, query, credential, deadline, stream=stream)
        if answer.status == 401:
            self.access.credentials.rejected(credential)
            fresh, deadline = await self._credential(call, deadline)
            if fresh != credential:
                answer = await self._send(call, query, fresh, deadline, stream=stream)
        if answer.status >= 300:
            raise failure_from_body(call.asked, answer.status, answer.body, answer.retry_after)
        return answer

    async def _credential(self, call: Call, deadline: float) -> tuple[Credential, float]:
        """Returns the credential, and the deadline of a call that may wait for it."""
        loop, current = asyncio.get_running_loop(), self.access.credentials.current
        if not call.must_not_wait:
            began = loop.time()
            return await current(), deadline + loop.time() - began
        try:
            async with asyncio.timeout_at(deadline):
                return await current(), deadline
        except TimeoutError:
            raise NoCredential(f"{call.asked}: {NoCredential.said} in time: it was not sent") from None

    async def _send(
        self, call: Call, query: Mapping[str, str], credential: Credential, deadline: float, *, stream: bool
    ) -> _Answer:
        """Sends the request once. A successful `stream` is returned without its body and not yet released."""
        request = self._request(call, query, credential)
        try:
            response = await self._transport_for(credential).send(request, deadline)
        except OSError as error:
            raise self._not_sent(call, error) from None
        except BrokenExchange as error:
            raise self._no_answer(call, error) from None
        status = response.status
        if status < 300 and stream:
            return _Answer(response, status, "", b"")
        retry_after, limit = "", None if call.limit is None else call.limit + 1
        if status >= 300:
            retry_after, limit = response.retry_after, _MAX_FAILURE_BODY
        try:
            body = await response.read(deadline, limit)
            if status < 300 and call.limit is not None and len(body) > call.limit:
                raise TooLong(f"{call.asked}: {TooLong.said}: more than {call.limit} bytes")
            return _Answer(response, status, retry_after, body)
        except BrokenExchange as error:
            raise self._no_answer(call, error) from None
        finally:
            response.release()

    def _request(self, call: Call, query: Mapping[str, str], credential: Credential) -> Request:
        if self._headers is None or self._headers[0] != credential.token:
            self._headers = credential.token, self._headers_with(credential.token)
        target = f"{self._path}{call.path}?{urlencode(query)}"
        return Request(call.method, target, self._headers[1], call.body, call.content_type)

    def _headers_with(self, token: str) -> tuple[tuple[str, str], ...]:
        headers = [
            ("User-Agent", f"cotenant/{__version__}"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            *((name, value) for name, values in self.access.headers.items() for value in values),
        ]
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        return tuple(headers)

    def _transport_for(self, credential: Credential) -> Transport:
        """Returns the same transport as long as the certificates are the same."""
        access = self.access
        authority = b""
        if self._server.scheme == "https" and access.authority is not None:
            authority = access.authority.read()
        key = (authority, credential.certificate, credential.key)
        if self._transport is None or self._transport[0] != key:
            transport = self._new_transport(*key)
            if self._transport is not None:
                self._transport[1].retire()
            self._transport = key, transport
        return self._transport[1]

    def _new_transport(self, authority: bytes, certificate: bytes, key: bytes) -> Transport:
        access, server, settings = self.access, self._server, self.settings
        host, tls = server.hostname or "", None
        if server.scheme == "https":
            context = client_context(authority, access.verify, certificate, key)
            tls = context, access.server_name or host.rstrip(".")
        if access.proxy is not None:
            from cotenant.kube.api.http.proxied import ProxiedTransport

            return ProxiedTransport(
                f"{server.scheme}://{server.netloc}",
                tls,
                access.proxy,
                connect_seconds=settings.connect,
                idle_seconds=settings.idle,
                max_connections=settings.connections,
            )
        return DirectTransport(
            host,
            server.port or (443 if tls else 80),
            tls,
            host_header=server.netloc,
            connect_seconds=settings.connect,
            idle_seconds=settings.idle,
            max_connections=settings.connections,
        )

    def _not_sent(self, call: Call, error: OSError) -> Unreachable:
        """The request was not carried out."""
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message or "certificate verify failed"
            return Untrusted(f"{call.asked}: {Untrusted.said}: {self._route()}: {why}")
        kind = ProxyDenied if isinstance(error, ProxyRefused) and error.status < 500 else Unreachable
        return kind(f"{call.asked}: {kind.said} from {self._route()}: {_why(error)}")

    def _no_answer(self, call: Call, error: BrokenExchange) -> Unreachable:
        """The request may have been carried out."""
        said = f"{call.asked}: {Unreachable.said} from {self._route()}: {error}"
        return Unreachable(said, uncertain=call.method != "GET")

    def _route(self) -> str:
        proxy = self.access.proxy
        return self.access.server if proxy is None else f"{self.access.server} through proxy {proxy.url}"


@dataclass(slots=True)
class _Answer:
    response: Response
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
    if not call.retry or isinstance(error, Untrusted | ProxyDenied):
        return False
    if isinstance(error, TooManyRequests):
        return True
    return isinstance(error, Unreachable | ServerFailed) and (call.repeatable or not error.uncertain)

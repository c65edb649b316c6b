"""Reads how many messages wait for a consumer of a NATS JetStream stream, and how many it has not
acknowledged.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any

from nats.aio.client import Client
from nats.errors import AuthorizationError, Error, NoRespondersError, NoServersError
from nats.js.api import ConsumerInfo
from nats.js.errors import NotFoundError, ServiceUnavailableError

from cotenant.signals.addresses import allowed_addresses, system_error
from cotenant.signals.checking import NATS, SECURE
from cotenant.signals.credentials import Credentials, read_credentials, tls_context, tls_failure
from cotenant.signals.servers import Access, CredentialsRefused, Servers
from cotenant.signals.signal import Reading, Secrets, SignalError
from cotenant.signals.specification import Nats
from cotenant.signals.streams import ALLOWANCE, AnswerTooLong
from cotenant.signals.urls import ServerUrl, host_and_port, parse_url

TIMEOUT = 5.0
"""Seconds for one answer, and for a connection."""


class NatsSignal:
    """A durable consumer of a stream."""

    def __init__(self, spec: Nats, secrets: Secrets, servers: Servers) -> None:
        url = parse_url(spec.url, NATS, several=True)
        self._stream, self._consumer = spec.stream, spec.consumer

        async def read() -> Credentials:
            references = {"password": spec.password_from, "token": spec.token_from}
            username = spec.username or url.username
            return await read_credentials(secrets, references, spec.tls, username, url.password)

        async def make(credentials: Credentials) -> NatsClient:
            context = await tls_context(spec.tls, credentials) if url.scheme in SECURE else None
            name = spec.tls.server_name if spec.tls else None
            return NatsClient(url, credentials, context, name, loopback=servers.loopback)

        address = ("nats", url.scheme, url.hosts, spec.tls)
        self._access: Access[NatsClient] = Access(servers, address, read, make)

    async def read(self) -> Reading:
        async with self._access.client() as client:
            info = await client.consumer(self._stream, self._consumer)
        try:
            return figures(info, time.time())
        except (AttributeError, TypeError, ValueError):
            raise SignalError(f"{client.name} answers in a form that NATS does not use") from None

    async def close(self) -> None:
        await self._access.close()


def figures(info: ConsumerInfo, at: float) -> Reading:
    """Makes a reading of what JetStream says of a consumer.

    Sequences of the stream are counters only for a consumer of the whole stream: for a filtered one, messages
    of others are between them. A redelivery moves neither: a message that always fails is never completed.
    """
    waiting, unacknowledged = float(info.num_pending or 0), float(info.num_ack_pending or 0)
    config = info.config
    whole = not (config.filter_subject or config.filter_subjects) and info.delivered is not None
    delivered = float(info.delivered.stream_seq) if whole and info.delivered else None
    return Reading(
        at,
        backlog=waiting,
        arrived=None if delivered is None else delivered + waiting,
        completed=None if delivered is None else max(0.0, delivered - unacknowledged),
        in_flight=unacknowledged,
    )


class _BoundedTransport:
    """A connection that fails when more bytes arrive than the allowance that the last question renewed."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.left = inner, ALLOWANCE

    async def read(self, size: int) -> bytes:
        data: bytes = await self._inner.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise AnswerTooLong
        return data

    def __bool__(self) -> bool:
        return bool(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _GuardedClient(Client):
    """Sends no credential in clear where TLS was asked for: the library leaves that to what the server says,
    and so to anybody on the path.
    """

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.options.get("tls") is not None and not info.get("tls_required"):
            raise NotEncrypted
        await super()._process_info(info, initial_connection)


class NotEncrypted(Error):
    """A server does not ask for TLS, though its URL does."""


class NatsClient:
    """The one connection to a cluster of NATS servers, opened again when it was lost."""

    def __init__(
        self,
        url: ServerUrl,
        credentials: Credentials,
        context: ssl.SSLContext | None,
        server_name: str | None,
        *,
        loopback: bool = True,
    ) -> None:
        self.name, self._hosts, self._credentials = str(url), url.hosts, credentials
        self._context, self._server_name, self._loopback = context, server_name, loopback
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._said: Exception | None = None
        self._transport: _BoundedTransport | None = None

    async def consumer(self, stream: str, consumer: str) -> ConsumerInfo:
        """Asks for a consumer's figures."""
        self._said = None
        try:
            async with asyncio.timeout(TIMEOUT):
                client = await self._open()
                if self._transport is not None:
                    self._transport.left = ALLOWANCE
                info: ConsumerInfo = await client.jetstream(timeout=TIMEOUT).consumer_info(stream, consumer)
                return info
        except SignalError:
            raise
        except Exception as error:  # noqa: BLE001 - the library raises many kinds
            raise self._explained(error, stream, consumer) from None

    async def _open(self) -> Client:
        async with self._connecting:
            if self._client is not None and self._client.is_connected:
                return self._client
            await self._drop()
            last: Exception | None = None
            for host, port in self._hosts:
                for address in await allowed_addresses(host, port, loopback=self._loopback):
                    try:
                        self._client = await self._connected(host, address, port)
                    except (OSError, Error) as error:
                        last = error
                    else:
                        return self._client
            raise last or OSError("no address")

    async def _connected(self, host: str, address: str, port: int) -> Client:
        client = _GuardedClient()
        try:
            await client.connect(
                f"{'tls' if self._context else 'nats'}://{host_and_port(address, port)}",
                error_cb=self._noted,
                name="cotenant",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=int(TIMEOUT),
                tls=self._context,
                tls_hostname=(self._server_name or host) if self._context else None,
                user=self._credentials.username,
                password=self._credentials.password,
                token=self._credentials.token,
            )
        except BaseException:
            await _quietly_closed(client)
            raise
        self._transport = _BoundedTransport(client._transport)  # noqa: SLF001
        client._transport = self._transport  # type: ignore[assignment]  # noqa: SLF001
        return client

    async def _noted(self, error: Exception) -> None:
        """Keeps what the library would print: a missing permission is not an answer but a remark of the
        server.
        """
        self._said = error

    def _explained(self, error: Exception, stream: str, consumer: str) -> SignalError:
        cause = self._said if isinstance(error, NoServersError | TimeoutError) and self._said else error
        said = self._credentials.hide(cause).removeprefix("nats: ")
        if failure := tls_failure(cause):
            return CredentialsRefused(f"TLS with {self.name} fails: {failure}")
        if isinstance(cause, AuthorizationError) or "authorization" in said.lower():
            return CredentialsRefused(
                f"{self.name} refuses the credentials: check username, passwordFrom or tokenFrom"
            )
        if isinstance(cause, NotEncrypted):
            return SignalError(
                f"{self.name} does not use TLS: nothing was sent; enable it there, or write nats:// in url"
            )
        if isinstance(cause, NotFoundError):
            return SignalError(
                f"{self.name} has no consumer {consumer} of a stream {stream}: check both names"
            )
        if isinstance(cause, NoRespondersError | ServiceUnavailableError):
            return SignalError(
                f"{self.name} has no JetStream for this account: enable it, or check the account"
            )
        if "permissions violation" in said.lower():
            return SignalError(
                f"{self.name}: the user may not ask for consumer {consumer} ({said}): allow "
                f"$JS.API.CONSUMER.INFO.{stream}.{consumer}"
            )
        if isinstance(cause, TimeoutError):
            return SignalError(f"{self.name} did not answer within {TIMEOUT:g} s")
        return SignalError(
            f"{self.name} cannot be reached: {system_error(cause) or said or type(cause).__name__}"
        )

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _quietly_closed(client)

    async def close(self) -> None:
        await self._drop()


async def _quietly_closed(client: Client) -> None:
    """Closes what may be closed or broken already."""
    try:
        async with asyncio.timeout(1):
            await client.close()
    except Exception:  # noqa: BLE001, S110 - there is nothing left to do about it
        pass

"""Reads the depth of a RabbitMQ queue over AMQP, by declaring it passively: nothing is created or consumed.

All signals of a server and virtual host share one connection, with a few channels. The server closes one
on which a queue was asked for that does not exist, so each is used by one signal at a time and then replaced.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import Any

from aiormq import exceptions
from aiormq.abc import AbstractChannel
from aiormq.connection import Connection, TransportFactory
from yarl import URL

from cotenant.signals.addresses import system_error
from cotenant.signals.checking import AMQP, SECURE
from cotenant.signals.credentials import Credentials, read_credentials, tls_context, tls_failure
from cotenant.signals.rabbitmq import amqp_vhost
from cotenant.signals.servers import Access, CredentialsRefused, Servers, turn
from cotenant.signals.signal import Reading, Secrets, SignalError
from cotenant.signals.specification import RabbitMQ
from cotenant.signals.streams import BoundedReader, open_stream
from cotenant.signals.urls import ServerUrl, host_and_port, parse_url

TIMEOUT = 5.0
"""Seconds for one answer, and for a connection."""
CHANNELS = 8


class AmqpSignal:
    """A queue, asked over AMQP."""

    def __init__(self, spec: RabbitMQ, secrets: Secrets, servers: Servers) -> None:
        url = parse_url(spec.url, AMQP)
        self._queue, vhost = spec.queue, amqp_vhost(url.path, spec.vhost)

        async def read() -> Credentials:
            username = spec.username or url.username
            return await read_credentials(
                secrets, {"password": spec.password_from}, spec.tls, username, url.password
            )

        async def make(credentials: Credentials) -> AmqpClient:
            context = await tls_context(spec.tls, credentials) if url.scheme in SECURE else None
            name = spec.tls.server_name if spec.tls else None
            return AmqpClient(url, vhost, credentials, context, name, loopback=servers.loopback)

        address = ("amqp", url.scheme, url.hosts, vhost, spec.tls)
        self._access: Access[AmqpClient] = Access(servers, address, read, make)

    async def read(self) -> Reading:
        async with self._access.client() as client:
            depth = await client.depth(self._queue)
        return Reading(time.time(), backlog=float(depth))

    async def close(self) -> None:
        await self._access.close()


class _GuardedTransport(TransportFactory):
    """Connects to addresses that are allowed, with a TLS context of ours."""

    def __init__(
        self,
        host: tuple[str, int],
        context: ssl.SSLContext | None,
        server_name: str | None,
        *,
        loopback: bool,
    ) -> None:
        self._host, self._context, self._server_name, self._loopback = host, context, server_name, loopback
        self.reader: BoundedReader | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        del url, kwargs  # the host is known; the address of another would not be checked
        self.reader, writer = await open_stream(
            *self._host, self._context, self._server_name, loopback=self._loopback
        )
        return self.reader, writer


class AmqpClient:
    """The one connection to a server's virtual host, opened again when it was lost."""

    def __init__(
        self,
        url: ServerUrl,
        vhost: str,
        credentials: Credentials,
        context: ssl.SSLContext | None,
        server_name: str | None,
        *,
        loopback: bool = True,
    ) -> None:
        self.name, self._vhost, self._credentials = str(url), vhost, credentials
        self._transport = _GuardedTransport(url.hosts[0], context, server_name, loopback=loopback)
        host, port = url.hosts[0]
        self._url = URL(f"{url.scheme}://{host_and_port(host, port)}/").with_query(
            heartbeat="30", name="cotenant"
        )
        # Without an account RabbitMQ's own default is tried, which it accepts from its own machine only.
        self._url = self._url.with_user(credentials.username or "guest").with_password(
            credentials.password if credentials.password is not None else "guest"
        )
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._free: list[AbstractChannel] = []
        self._turns = asyncio.Semaphore(CHANNELS)
        # It logs every failed attempt; here a failure is an exception, and the caller says it once.
        logging.getLogger("aiormq").setLevel(logging.CRITICAL)

    async def depth(self, queue: str) -> int:
        """Returns how many messages are ready in a queue."""
        try:
            async with turn(self._turns, TIMEOUT), asyncio.timeout(TIMEOUT):
                return await self._declared(queue)
        except SignalError:
            raise
        except Exception as error:  # noqa: BLE001 - the library raises many kinds
            raise self._explained(error, queue) from None

    async def _declared(self, queue: str) -> int:
        connection = await self._open()
        if self._transport.reader is not None:
            self._transport.reader.renew()
        channel: AbstractChannel | None = None
        while self._free and channel is None:
            candidate = self._free.pop()
            channel = None if candidate.is_closed else candidate
        channel = channel or await connection.channel(publisher_confirms=False)
        try:
            declared = await channel.queue_declare(queue, passive=True)
        except BaseException:
            await _quietly_closed(channel)
            raise
        self._free.append(channel)
        if declared.message_count is None:
            raise SignalError(f"{self.name} does not say how many messages are in queue {queue}")
        return int(declared.message_count)

    async def _open(self) -> Connection:
        async with self._connecting:
            if self._connection is not None and self._connection.is_opened and not self._connection.is_closed:
                return self._connection
            await self._drop()
            connection = Connection(self._url, transport_factory=self._transport)
            connection.vhost = self._vhost
            await connection.connect()
            self._connection = connection
            return connection

    def _explained(self, error: Exception, queue: str) -> SignalError:
        said = self._credentials.hide(_words(error))
        if failure := tls_failure(error):
            return CredentialsRefused(f"TLS with {self.name} fails: {failure}")
        if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
            return CredentialsRefused(f"{self.name} refuses the credentials: check username and passwordFrom")
        if isinstance(error, exceptions.ChannelNotFoundEntity):
            return SignalError(
                f"{self.name} has no queue {queue} in virtual host {self._vhost}: check queue and vhost"
            )
        if isinstance(error, exceptions.InvalidFrameError) and "Connection.OpenOk" in said:
            return SignalError(f"{self.name} has no virtual host {self._vhost} for this user: check vhost")
        if isinstance(error, exceptions.ChannelAccessRefused | exceptions.ConnectionNotAllowed):
            return SignalError(
                f"{self.name}: the user has no right to queue {queue} of virtual host {self._vhost} ({said})"
            )
        if isinstance(error, exceptions.ChannelLockedResource):
            return SignalError(f"queue {queue} of {self.name} is exclusive to another connection")
        if isinstance(error, TimeoutError):
            return SignalError(f"{self.name} did not answer within {TIMEOUT:g} s")
        if isinstance(error, exceptions.IncompatibleProtocolError):
            return SignalError(f"{self.name} does not speak AMQP 0-9-1: check the port in url")
        return SignalError(
            f"{self.name} cannot be reached: {system_error(error) or said or 'the connection was lost'}"
        )

    async def _drop(self) -> None:
        connection, self._connection, self._free = self._connection, None, []
        if connection is not None:
            await _quietly_closed(connection)

    async def close(self) -> None:
        await self._drop()


async def _quietly_closed(what: AbstractChannel | Connection) -> None:
    """Closes what may be closed or broken already."""
    try:
        async with asyncio.timeout(1):
            await what.close()
    except Exception:  # noqa: BLE001, S110 - there is nothing left to do about it
        pass


def _words(error: Exception) -> str:
    return " ".join(str(each) for each in error.args)

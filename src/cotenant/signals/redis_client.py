"""Sends commands to a Redis server, all that are asked at about the same time as one pipeline.

One connection serves every signal of a server: while a pipeline is on its way, what is asked meanwhile waits
for the next. Every command only reads, so a lost connection is opened again and the pipeline repeated, once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
)
from redis.backoff import NoBackoff

from cotenant.signals.addresses import system_error
from cotenant.signals.credentials import Credentials, tls_failure
from cotenant.signals.servers import CredentialsRefused
from cotenant.signals.signal import SignalError
from cotenant.signals.streams import BoundedReader, open_stream
from cotenant.signals.urls import ServerUrl

TIMEOUT = 5.0
"""Seconds for one pipeline, with the connection."""
LONGEST = 2_000
"""Commands in one pipeline."""

RETRY = Retry(NoBackoff(), 1, (exceptions.ConnectionError,))
"""A server that was restarted has closed the connection: then one more attempt. Not after a time-out."""

Command = Callable[[Any], object]
"""Adds one command to a pipeline."""
Reply = Any
"""What Redis answered, or the exception that it answered with."""


class GuardedConnection(Connection):
    """Connects to addresses that are allowed, with a TLS context of ours, and bounds what is answered."""

    def __init__(
        self,
        *,
        note: Callable[[SignalError], None],
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
        loopback: bool = True,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self._context, self._server_name, self._note = context, server_name, note
        self._loopback = loopback

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self.socket_connect_timeout):
                opened = await open_stream(
                    self.host, self.port, self._context, self._server_name, loopback=self._loopback
                )
        except SignalError as error:
            self._note(error)  # the library wraps it, and that of a Sentinel more than once
            raise
        self._reader, self._writer = opened

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if isinstance(self._reader, BoundedReader):
            self._reader.renew()
        await super().send_packed_command(command, check_health)


class GuardedSentinelConnection(GuardedConnection, SentinelManagedConnection):
    """Asks the Sentinels where the master is, then connects to it, if its address is allowed."""


class RedisClient:
    """The one connection to a server, or to each server of a cluster."""

    def __init__(
        self,
        url: ServerUrl,
        master: str,
        database: int,
        credentials: Credentials,
        *,
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
        sentinel_username: str | None = None,
        loopback: bool = True,
    ) -> None:
        self.name, self._credentials = str(url), credentials
        self._refused: SignalError | None = None
        guarded: dict[str, Any] = {
            "context": context,
            "server_name": server_name,
            "loopback": loopback,
            "note": self._note,
        }
        login: dict[str, Any] = {"username": credentials.username, "password": credentials.password}
        options: dict[str, Any] = {
            "socket_timeout": TIMEOUT,
            "socket_connect_timeout": TIMEOUT,
            "protocol": 2,  # every version speaks it
            "driver_info": None,  # CLIENT SETINFO, which an ACL user may lack
        }
        self._sentinel: Sentinel | None = None
        if url.scheme.endswith("+cluster"):
            self._client: Redis | RedisCluster = _cluster(url, options | login, guarded)
        else:
            options["retry"] = RETRY
            if master:
                sentinel_login = {"username": sentinel_username, "password": credentials.sentinel_password}
                self._sentinel = _sentinel(url, options | guarded | sentinel_login)
                pool: ConnectionPool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
                    master,
                    self._sentinel,
                    connection_class=GuardedSentinelConnection,
                    max_connections=1,
                    db=database,
                    **options,
                    **guarded,
                    **login,
                )
            else:
                (host, port), *_ = url.hosts
                pool = ConnectionPool(
                    connection_class=GuardedConnection,
                    max_connections=1,
                    host=host,
                    port=port,
                    db=database,
                    **options,
                    **guarded,
                    **login,
                )
            self._client = Redis.from_pool(pool)
        self._waiting: list[tuple[tuple[Command, ...], asyncio.Future[list[Reply]]]] = []
        self._sending: asyncio.Task[None] | None = None

    def _note(self, error: SignalError) -> None:
        self._refused = error

    async def run(self, *commands: Command) -> list[Reply]:
        """Runs commands; each reply may be the exception that Redis answered with. SignalError if all
        failed.
        """
        answered: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, answered))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await answered

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, size = [], 0
                while self._waiting and size < LONGEST:
                    batch.append(self._waiting.pop(0))
                    size += len(batch[-1][0])
                await self._send_batch(batch)
        finally:
            self._sending = None

    async def _send_batch(self, batch: list[tuple[tuple[Command, ...], asyncio.Future[list[Reply]]]]) -> None:
        self._refused = None
        try:
            async with asyncio.timeout(2 * TIMEOUT):
                pipeline = self._client.pipeline(transaction=False)
                for commands, _ in batch:
                    for command in commands:
                        command(pipeline)
                replies = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it, in words
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(self.explained(error))
            return
        at = 0
        for commands, answered in batch:
            if not answered.done():
                answered.set_result(replies[at : at + len(commands)])
            at += len(commands)

    def explained(self, error: BaseException) -> SignalError:
        """Says in words what failed and what to do."""
        if isinstance(error, SignalError):
            return error
        if self._refused is not None:
            return self._refused
        said = self._credentials.hide(error)
        if isinstance(
            error, exceptions.AuthenticationError | exceptions.AuthorizationError
        ) or said.startswith(("WRONGPASS", "NOAUTH", "invalid username-password")):
            asked = "refuses the credentials" if self._credentials.password else "asks for a password"
            return CredentialsRefused(f"{self.name} {asked} ({said}): check username and passwordFrom")
        if isinstance(error, exceptions.NoPermissionError):
            return SignalError(
                f"{self.name}: the ACL user lacks a right ({said}): it needs +@read on these keys"
            )
        if isinstance(error, MasterNotFoundError):
            if "Authentication" in str(error):
                return CredentialsRefused(
                    f"{self.name}: the Sentinels ask for a password: check sentinelPasswordFrom"
                )
            return SignalError(f"{self.name}: no Sentinel can be reached that knows a master of this name")
        if isinstance(error, TimeoutError | exceptions.TimeoutError):
            hint = ": does it speak TLS on this port?" if self.name.startswith("rediss") else ""
            return SignalError(f"{self.name} did not answer within {TIMEOUT:g} s{hint}")
        if failure := tls_failure(error):
            return CredentialsRefused(f"TLS with {self.name} fails: {failure}")
        if isinstance(error, exceptions.MovedError | exceptions.AskError) or said.startswith("MOVED"):
            return SignalError(f"{self.name} is a Redis Cluster: write redis+cluster:// in url")
        if isinstance(error, exceptions.ConnectionError | exceptions.RedisClusterException | OSError):
            # With TLS 1.3 a client learns only after its handshake that its certificate was not enough.
            reset = "reset by peer" in (system_error(error) or "")
            hint = (
                ": does it ask for tls.certificateFrom?" if reset and self.name.startswith("rediss") else ""
            )
            return SignalError(f"{self.name} cannot be reached: {system_error(error) or said}{hint}")
        return SignalError(f"{self.name} answers: {said}")

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        for _, answered in self._waiting:
            answered.cancel()
        await self._client.aclose()
        if self._sentinel is not None:
            await self._sentinel.aclose()


def _sentinel(url: ServerUrl, options: dict[str, Any]) -> Sentinel:
    sentinel = Sentinel([])  # type: ignore[no-untyped-call]
    sentinel.sentinels = [
        Redis.from_pool(
            ConnectionPool(
                connection_class=GuardedConnection, max_connections=1, host=host, port=port, **options
            )
        )
        for host, port in url.hosts
    ]
    return sentinel


def _cluster(url: ServerUrl, options: dict[str, Any], guarded: dict[str, Any]) -> RedisCluster:
    """Makes a cluster's client whose connections are guarded, also those to servers that it discovers."""
    cluster = RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in url.hosts],
        retry=RETRY,
        require_full_coverage=False,
        **options,
    )
    cluster.connection_kwargs |= {"connection_class": GuardedConnection, **guarded}
    for node in cluster.nodes_manager.startup_nodes.values():
        node.connection_class = GuardedConnection
        node.connection_kwargs |= guarded
    return cluster

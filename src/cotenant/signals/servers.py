"""Shares one client among all signals that ask the same server with the same credentials.

A thousand scalers that poll one Redis use one connection. The credentials are a part of the key, by value: a
scaler without them never gets a connection that another's Secret has opened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

from cotenant.signals.credentials import Credentials
from cotenant.signals.signal import SignalError

RENEW = 30.0
"""Seconds. Where a server refuses the credentials, their Secret is read again at most this often."""


class Client(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)


class CredentialsRefused(SignalError):
    """The server did not accept the credentials or the certificates: they may have been replaced since they
    were read.
    """


class Servers:
    """The clients of one process, each with the number of signals that use it."""

    def __init__(self, *, loopback: bool = True) -> None:
        self.loopback = loopback
        """Whether they may connect to this machine or pod itself."""
        self._clients: dict[Hashable, tuple[asyncio.Future[Any], int]] = {}

    async def acquire(self, key: Hashable, make: Callable[[], Awaitable[C]]) -> C:
        """Returns the client of this key, made if it is not there yet."""
        if key in self._clients:
            future, users = self._clients[key]
            self._clients[key] = (future, users + 1)
        else:
            future = asyncio.ensure_future(make())
            self._clients[key] = (future, 1)
        try:
            return await asyncio.shield(future)
        except BaseException:
            await self.release(key)
            raise

    async def release(self, key: Hashable) -> None:
        """Closes the client of this key when nobody uses it any more."""
        future, users = self._clients[key]
        if users > 1:
            self._clients[key] = (future, users - 1)
            return
        del self._clients[key]
        if not future.done():
            future.cancel()
        elif not future.cancelled() and future.exception() is None:
            await future.result().close()

    async def close(self) -> None:
        """Closes all clients; for the end of the process."""
        clients, self._clients = self._clients, {}
        for future, _ in clients.values():
            future.cancel()
            if future.done() and not future.cancelled() and future.exception() is None:
                await future.result().close()


class Access(Generic[C]):
    """One signal's way to the shared client: reads its credentials, and again if the server refuses them."""

    def __init__(
        self,
        servers: Servers,
        address: Hashable,
        read: Callable[[], Awaitable[Credentials]],
        make: Callable[[Credentials], Awaitable[C]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._address, self._read, self._make = servers, address, read, make
        self._clock = clock
        self._held: tuple[Hashable, C] | None = None
        self._read_at: float | None = None
        self._refused = False
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[C]:
        """Lends the client. Where the server refuses the credentials, they are read again, soon."""
        client = await self._client()
        try:
            yield client
        except CredentialsRefused:
            self._refused = True
            raise

    async def _client(self) -> C:
        async with self._opening:
            now = self._clock()
            if self._held is not None and self._refused and now - (self._read_at or 0.0) >= RENEW:
                await self._let_go()
            if self._held is None:
                credentials = await self._read()
                self._read_at, self._refused = now, False
                key = (self._address, credentials)
                self._held = (key, await self._servers.acquire(key, lambda: self._make(credentials)))
            return self._held[1]

    async def close(self) -> None:
        async with self._opening:
            await self._let_go()

    async def _let_go(self) -> None:
        if self._held is not None:
            key, self._held = self._held[0], None
            await self._servers.release(key)


@asynccontextmanager
async def turn(turns: asyncio.Semaphore, within: float) -> AsyncIterator[None]:
    """Waits for one of a server's turns; TimeoutError where those before it take too long, as a server that
    hangs.
    """
    async with asyncio.timeout(within):
        await turns.acquire()
    try:
        yield
    finally:
        turns.release()

"""Registers the device plugin with the kubelet, and again after each restart of the kubelet.

A kubelet that starts removes every socket from its plugin folder, ours included, and knows no plugin. Until
we register again it starts containers without asking us. So we are told of each change in that folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import grpc
import grpc.aio

from cotenant.kube.agent.classic.channel import kubelet_channel
from cotenant.kube.agent.classic.folder_watch import watching
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.logs import get_logger
from cotenant.kube.protos import device_plugin_v1beta1 as v1beta1
from cotenant.kube.protos.grpc_calls import call

log = get_logger(__name__)
_VERSION = "v1beta1"
_OUR_SOCKET, _KUBELET_SOCKET = "cotenant", "kubelet.sock"
"""Ours has another name for each registration: a kubelet (1.37.1) that still has a stream to a socket refuses
every registration of the same path, until it restarts.
"""
_INTERVAL = 0.1
"""Seconds between two checks of the sockets where nothing tells us of changes."""
_SELDOM = 5.0
"""Seconds after which they are checked although nothing did."""
_WATCH_TIMEOUT = 5.0
"""Seconds for the kubelet to call ListAndWatch after it accepted us; then we register again."""

Identity = tuple[int, int, int]
"""Device, inode and change time of a socket's file. A new socket at the same path has another identity."""


@dataclass
class Registration:
    """Keeps one device plugin served and registered while `run` runs."""

    folder: Path
    resource: str
    options: v1beta1.DevicePluginOptions
    handler: grpc.GenericRpcHandler
    random: Random = field(default_factory=Random)
    wall_clock: Callable[[], float] = time.time
    _accepted: float | None = None
    _streams: int = 0
    _watched: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when a stream ends, and when the folder changes."""

    @property
    def since(self) -> float | None:
        """Unix time of the current registration; None while the kubelet does not watch our devices."""
        return self._accepted if self._streams else None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Marks a ListAndWatch call that is open. When the last one ends, so does the registration."""
        self._streams += 1
        self._watched = True
        try:
            yield
        finally:
            self._streams -= 1
            self._changed.set()

    async def run(self) -> None:
        backoff = Backoff(_INTERVAL, 5.0, self.random)
        self._remove_sockets()  # of an agent that was killed
        while True:
            kubelet = _identity(self.folder / _KUBELET_SOCKET)
            if kubelet is not None and await self._serve_once(kubelet):
                backoff.reset()
                log.warning("kubelet no longer watches: registering again", resource=self.resource)
            await self._pause(backoff.next(), kubelet)

    async def _serve_once(self, kubelet: Identity) -> bool:
        """Serves at a socket of its own and registers it; returns when that has ended, and whether it began.
        All streams have ended then, too: a kubelet refuses a second registration beside an open one.
        """
        socket = self.folder / f"{_OUR_SOCKET}-{self.random.randrange(16**8):08x}.sock"
        server = await self._listen(socket)
        if server is None:
            return False
        try:
            if not await self._register(socket.name):
                return False
            await self._until_lost(kubelet, socket, _identity(socket))
            return True
        finally:
            self._accepted = None
            await server.stop(grace=1.0)
            with contextlib.suppress(OSError):
                socket.unlink(missing_ok=True)
            await self._until_streams_end()

    async def _listen(self, socket: Path) -> grpc.aio.Server | None:
        """Returns None if the kubelet's folder does not exist (yet)."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self.handler,))
        try:
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
        except RuntimeError as error:
            log.warning(
                "device plugin cannot listen: is agent.kubelet the kubelet's folder?",
                socket=socket,
                error=error,
            )
            return None
        return server

    async def _register(self, endpoint: str) -> bool:
        request = v1beta1.RegisterRequest(
            version=_VERSION, endpoint=endpoint, resource_name=self.resource, options=self.options
        )
        self._watched = False
        async with kubelet_channel(self.folder / _KUBELET_SOCKET) as channel:
            try:
                await call(channel, v1beta1.Registration.Register)(request, timeout=5.0)
            except grpc.aio.AioRpcError as error:
                log.warning("kubelet did not register", resource=self.resource, error=error.details())
                return False
        self._accepted = self.wall_clock()
        log.info("registered with the kubelet", resource=self.resource, endpoint=endpoint)
        return True

    async def _until_lost(self, kubelet: Identity, socket: Path, ours: Identity | None) -> None:
        """Returns when the kubelet's socket is a new one, ours was removed, or nobody watches our devices."""
        left = _WATCH_TIMEOUT
        with watching(self.folder, self._changed) as told:
            while self._streams or (not self._watched and left > 0):
                if _identity(self.folder / _KUBELET_SOCKET) != kubelet or _identity(socket) != ours:
                    return
                left -= _INTERVAL
                await self._wait_for_change(_SELDOM if told and self._streams else _INTERVAL)

    async def _wait_for_change(self, within: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()

    async def _until_streams_end(self) -> None:
        """The server was stopped: what still runs is being cancelled."""
        left = _WATCH_TIMEOUT
        while self._streams and left > 0:
            left -= _INTERVAL
            await asyncio.sleep(_INTERVAL)

    def _remove_sockets(self) -> None:
        with contextlib.suppress(OSError):
            for left in self.folder.glob(f"{_OUR_SOCKET}*.sock"):
                left.unlink()

    async def _pause(self, seconds: float, tried: Identity | None) -> None:
        """Waits before the next try, or until there is another kubelet than the one that was tried."""
        while seconds > 0:
            await asyncio.sleep(min(seconds, _INTERVAL))
            seconds -= _INTERVAL
            if _identity(self.folder / _KUBELET_SOCKET) not in (tried, None):
                return


def _identity(path: Path) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns

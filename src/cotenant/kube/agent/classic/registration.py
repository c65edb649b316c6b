"""Known to the kubelet, again after each of its restarts.

A kubelet that starts empties the folder of sockets, ours included, and has forgotten us; until it knows us
again it starts containers without asking. So we look often, which costs two stat calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio

from cotenant.kube.agent.classic.messages import DEVICE_PLUGIN
from cotenant.kube.agent.classic.pod_resources import CHANNEL
from cotenant.kube.api.backoff import Backoff

_log = logging.getLogger(__name__)
_VERSION = "v1beta1"
_OURS, _KUBELETS = "cotenant.sock", "kubelet.sock"
_LOOK = 0.1
_SILENT = 5.0
"""A kubelet that accepted us and did not begin to listen in so many seconds is asked again."""

Identity = tuple[int, int, int]
"""Of a socket's file: a new one at the same path is another."""


@dataclass
class Registration:
    folder: Path
    resource: str
    options: Any
    handler: grpc.GenericRpcHandler
    random: Random = field(default_factory=Random)
    wall_clock: Callable[[], float] = time.time
    _accepted: float | None = None
    _streams: int = 0
    _heard: bool = False

    @property
    def since(self) -> float | None:
        """Unix time of the registration that holds now."""
        return self._accepted if self._streams else None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While the kubelet listens to what is offered: when it ends, so does the registration."""
        self._streams += 1
        self._heard = True
        try:
            yield
        finally:
            self._streams -= 1

    async def run(self) -> None:
        server: grpc.aio.Server | None = None
        ours: Identity | None = None
        backoff = Backoff(_LOOK, 5.0, self.random)
        try:
            while True:
                if server is None or ours is None or _identity(self.folder / _OURS) != ours:
                    if server is not None:
                        await server.stop(grace=1.0)
                    server, ours = await self._serve()
                kubelet = _identity(self.folder / _KUBELETS)
                if kubelet is not None and await self._register():
                    backoff.reset()
                    await self._until_lost(kubelet, ours)
                    self._accepted = None
                    _log.warning("the kubelet no longer listens: registering again")
                await self._pause(backoff.next(), kubelet)
        finally:
            self._accepted = None
            if server is not None:
                await server.stop(grace=1.0)

    async def _serve(self) -> tuple[grpc.aio.Server | None, Identity | None]:
        """None where the kubelet's folder is not there (yet)."""
        socket = self.folder / _OURS
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self.handler,))
        try:
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
        except RuntimeError as error:
            _log.warning("cannot serve at %s: %s. Is agent.kubelet the kubelet's folder?", socket, error)
            return None, None
        return server, _identity(socket)

    async def _register(self) -> bool:
        request = DEVICE_PLUGIN["RegisterRequest"](
            version=_VERSION, endpoint=_OURS, resource_name=self.resource, options=self.options
        )
        self._heard = False
        async with grpc.aio.insecure_channel(f"unix:{self.folder / _KUBELETS}", options=CHANNEL) as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=DEVICE_PLUGIN["RegisterRequest"].SerializeToString,
                response_deserializer=DEVICE_PLUGIN["Empty"].FromString,
            )
            try:
                await register(request, timeout=5.0)
            except grpc.aio.AioRpcError as error:
                _log.warning("the kubelet does not accept %s: %s", self.resource, error.details())
                return False
        self._accepted = self.wall_clock()
        _log.info("registered %s with the kubelet", self.resource)
        return True

    async def _until_lost(self, kubelet: Identity, ours: Identity | None) -> None:
        """Until the kubelet is another, or has removed our socket, or does not listen."""
        patience = _SILENT
        while self._streams or (not self._heard and patience > 0):
            patience -= _LOOK
            await asyncio.sleep(_LOOK)
            if _identity(self.folder / _KUBELETS) != kubelet or _identity(self.folder / _OURS) != ours:
                return

    async def _pause(self, seconds: float, tried: Identity | None) -> None:
        """Before the next try; a kubelet other than the one that was tried ends it."""
        while seconds > 0:
            await asyncio.sleep(min(seconds, _LOOK))
            seconds -= _LOOK
            if _identity(self.folder / _KUBELETS) not in (tried, None):
                return


def _identity(path: Path) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns

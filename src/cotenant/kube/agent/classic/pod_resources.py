"""Asks the kubelet's pod-resources API which container holds which slot.

The kubelet answers at most 100 such calls a second, 10 at once, for all clients on the node. So containers
that start together share an answer. Each gets one to a call that was sent after it came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

import grpc
import grpc.aio

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.agent.classic.channel import kubelet_channel
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.protos import pod_resources_v1 as v1
from cotenant.kube.protos.grpc_calls import call

SOCKET = "pod-resources/kubelet.sock"
"""In the kubelet's folder."""
_RETRIED = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}


class PodResourcesUnavailable(CotenantError):
    """The kubelet does not answer which container holds which slot."""


class Holder(NamedTuple):
    """A container that holds a slot. The kubelet gives names only, no UID."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return "/".join(self)


Holders = Mapping[str, tuple[Holder, ...]]
"""By device. More than one holder of a device is a contradiction, which the reader has to refuse."""


class PodResources:
    """Keeps one connection to the kubelet, and finds it again after a restart."""

    def __init__(
        self,
        socket: Path,
        *,
        within: float = 5.0,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`within` is the time for an answer, all tries together, in seconds."""
        self.socket = socket
        self._within = within
        self._random = random or Random()
        self._clock = clock
        self._channel: grpc.aio.Channel | None = None
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[Holders] | None = None
        self.answered: float | None = None
        """When the kubelet last answered, by the monotonic clock."""

    async def holders(self) -> Holders:
        """The answer to a call that was sent after this one began."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask_in_turn())
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _ask_in_turn(self) -> Holders:
        async with self._turn:
            self._next = None  # callers from now on get the answer after this one
            return await self._ask()

    async def _ask(self) -> Holders:
        end = self._clock() + self._within
        backoff = Backoff(0.02, 0.5, self._random)
        while True:
            left = end - self._clock()
            try:
                response = await self._list_pods(within=max(left, 0.1))
            except grpc.aio.AioRpcError as error:
                pause = backoff.next()
                if error.code() not in _RETRIED or self._clock() + pause > end:
                    raise self._unavailable(error) from None
                await asyncio.sleep(pause)
            else:
                self.answered = self._clock()
                return read_holders(response)

    async def _list_pods(self, within: float) -> v1.ListPodResourcesResponse:
        if self._channel is None:
            self._channel = kubelet_channel(self.socket)
        return await call(self._channel, v1.PodResourcesLister.List)(
            v1.ListPodResourcesRequest(), timeout=within
        )

    def _unavailable(self, error: grpc.aio.AioRpcError) -> PodResourcesUnavailable:
        why = (
            "there is no such socket"
            if not self.socket.exists()
            else f"{error.code().name}: {error.details()}"
        )
        return PodResourcesUnavailable(
            f"the kubelet's pod-resources at {self.socket} does not answer which container "
            f"holds the slot ({why}). Is agent.kubelet the kubelet's folder, and mounted into the agent?"
        )


def read_holders(response: v1.ListPodResourcesResponse) -> Holders:
    """Devices of other plugins are left out."""
    found: dict[str, list[Holder]] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                if devices.resource_name == names.GPU_SLOT:
                    for device in devices.device_ids:
                        found.setdefault(device, []).append(Holder(pod.namespace, pod.name, container.name))
    return {device: tuple(holders) for device, holders in found.items()}

"""Which container holds which slot, as the kubelet itself has it on record.

The kubelet answers this 100 times a second, 10 at once, for all who ask on the node. So containers that start
together share an answer: everyone gets one that was asked for after they came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import grpc
import grpc.aio

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.agent.classic.messages import POD_RESOURCES
from cotenant.kube.api.backoff import Backoff

SOCKET = "pod-resources/kubelet.sock"
"""In the kubelet's folder."""
CHANNEL = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 16 * 2**20),
)
_AGAIN = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}


class PodResourcesUnavailable(CotenantError):
    """The kubelet does not tell who holds what."""


class Holder(NamedTuple):
    """A container to which the kubelet gave a slot. Names only: the kubelet tells no UID here."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return "/".join(self)


Holders = Mapping[str, tuple[Holder, ...]]
"""By device; more than one is a contradiction."""


class PodResources:
    """Asks the kubelet. Keeps its connection, and finds a kubelet that was restarted."""

    def __init__(
        self,
        socket: Path,
        *,
        within: float = 5.0,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        """An answer to a question asked after this call began."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask_in_turn())
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def _ask_in_turn(self) -> Holders:
        async with self._turn:
            self._next = None  # who comes from now on may not have this answer
            return await self._ask()

    async def _ask(self) -> Holders:
        end = self._clock() + self._within
        backoff = Backoff(0.02, 0.5, self._random)
        while True:
            left = end - self._clock()
            try:
                answer = await self._list()(
                    POD_RESOURCES["ListPodResourcesRequest"](), timeout=max(left, 0.1)
                )
            except grpc.aio.AioRpcError as error:
                pause = backoff.next()
                if error.code() not in _AGAIN or self._clock() + pause > end:
                    raise self._unavailable(error) from None
                await asyncio.sleep(pause)
            else:
                self.answered = self._clock()
                return read_holders(answer)

    def _list(self) -> Any:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(f"unix:{self.socket}", options=CHANNEL)
        return self._channel.unary_unary(
            "/v1.PodResourcesLister/List",
            request_serializer=POD_RESOURCES["ListPodResourcesRequest"].SerializeToString,
            response_deserializer=POD_RESOURCES["ListPodResourcesResponse"].FromString,
        )

    def _unavailable(self, error: grpc.aio.AioRpcError) -> PodResourcesUnavailable:
        why = (
            "there is no such socket"
            if not self.socket.exists()
            else f"{error.code().name}: {error.details()}"
        )
        return PodResourcesUnavailable(
            f"the kubelet's pod-resources at {self.socket} does not tell whose container this is ({why}). "
            "Is agent.kubelet the kubelet's folder, and mounted into the agent?"
        )


def read_holders(answer: Any) -> Holders:
    """Of our slots only."""
    found: dict[str, list[Holder]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                if devices.resource_name == names.GPU_SLOT:
                    for device in devices.device_ids:
                        found.setdefault(device, []).append(Holder(pod.namespace, pod.name, container.name))
    return {device: tuple(holders) for device, holders in found.items()}

"""The device plugin: slots offered to the kubelet, mounted into containers, and made when they start.

A slot stands for a container's place on the node, not for memory: there are as many as the cards admit
clients, whatever their size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.agent.classic.messages import DEVICE_PLUGIN
from cotenant.kube.agent.classic.registration import Registration
from cotenant.kube.agent.slots.mounts import Simulation, allocation
from cotenant.kube.agent.slots.node_slots import NodeSlots, SlotOwner, device_id

_log = logging.getLogger(__name__)
_PATIENCE = 25.0
"""Seconds for a start; after 30 the kubelet gives up by itself, and its message says less than ours."""


class Starts(Protocol):
    """starting.py"""

    async def start(self, device: str) -> SlotOwner: ...


class DevicePlugin:
    """Serves `cotenant.dev/gpu-slot` for as long as `run` runs."""

    def __init__(
        self,
        kubelet: Path,
        slots: NodeSlots,
        starting: Starts,
        simulation: Simulation | None = None,
        *,
        patience: float = _PATIENCE,
    ) -> None:
        """`kubelet` is the kubelet's folder; `simulation` is None where there are real cards."""
        self._slots = slots
        self._starting = starting
        self._simulation = simulation
        self._patience = patience
        self._count = slots.highest()
        self._changed = asyncio.Condition()
        self._registration = Registration(
            folder=kubelet / "device-plugins",
            resource=names.GPU_SLOT,
            options=_OPTIONS,
            handler=grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", self._methods()),
        )

    @property
    def registered_since(self) -> float | None:
        """Unix time since when the kubelet knows this plugin and listens to it; None if it does not."""
        return self._registration.since

    @property
    def count(self) -> int:
        """Slots that are offered."""
        return self._count

    async def offer(self, count: int) -> None:
        """So many slots, or as many as were offered already if that is more: at a kubelet's restart a pod
        whose device is gone would be thrown out.
        """
        async with self._changed:
            self._count = max(self._count, count)
            self._changed.notify_all()

    async def run(self) -> None:
        """Serves and stays registered, through restarts of the kubelet, until it is cancelled."""
        await self._registration.run()

    def _methods(self) -> dict[str, grpc.RpcMethodHandler]:
        one = grpc.unary_unary_rpc_method_handler
        return {
            "GetDevicePluginOptions": _handler(one, self._options, "Empty"),
            "ListAndWatch": _handler(grpc.unary_stream_rpc_method_handler, self._list_and_watch, "Empty"),
            "Allocate": _handler(one, self._allocate, "AllocateRequest"),
            "PreStartContainer": _handler(one, self._pre_start_container, "PreStartContainerRequest"),
        }

    async def _options(self, _request: Any, _context: Any) -> Any:
        return _OPTIONS

    async def _list_and_watch(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        with self._registration.listening():
            told = -1
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._count != told)  # noqa: B023 - asked at once
                    told = self._count
                devices = [DEVICE_PLUGIN["Device"](ID=device_id(n), health="Healthy") for n in range(told)]
                yield DEVICE_PLUGIN["ListAndWatchResponse"](devices=devices)

    async def _allocate(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Knows no pod, and needs none: limits come when the container starts."""
        return await _answer(context, self._mounts_of(request))

    async def _mounts_of(self, request: Any) -> Any:
        answers = []
        for asked in request.container_requests:
            folder = self._slots.prepare(_only(asked.devices_ids))
            given = allocation(self._slots.root, folder, self._simulation)
            mounts = [
                DEVICE_PLUGIN["Mount"](
                    container_path=str(mount.container), host_path=str(mount.host), read_only=mount.read_only
                )
                for mount in given.mounts
            ]
            answers.append(DEVICE_PLUGIN["ContainerAllocateResponse"](envs=given.environment, mounts=mounts))
        return DEVICE_PLUGIN["AllocateResponse"](container_responses=answers)

    async def _pre_start_container(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await _answer(context, self._start(request))

    async def _start(self, request: Any) -> Any:
        device = _only(request.devices_ids)
        try:
            async with asyncio.timeout(self._patience):
                await self._starting.start(device)
        except TimeoutError:
            raise CotenantError(
                f"{device}: its slot was not ready in {self._patience:.0f} s. It is tried again"
            ) from None
        return DEVICE_PLUGIN["PreStartContainerResponse"]()


_OPTIONS = DEVICE_PLUGIN["DevicePluginOptions"](pre_start_required=True)


def _only(devices: list[str]) -> str:
    if len(devices) != 1:
        raise CotenantError(
            f"a container has one slot, and {len(devices)} were asked for: leave {names.GPU_SLOT} to "
            f"Cotenant, and ask for {names.GPU_MEMORY} or {names.GPU}"
        )
    return devices[0]


async def _answer(context: grpc.aio.ServicerContext[Any, Any], work: Awaitable[Any]) -> Any:
    """Failures go to the kubelet, which makes events of them."""
    try:
        return await work
    except CotenantError as error:
        _log.warning("%s", error)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"cotenant: {error}")
    except Exception as error:  # noqa: BLE001 - a bug: the container does not start, others do
        _log.exception("a call of the kubelet failed")
        await context.abort(
            grpc.StatusCode.INTERNAL, f"cotenant: the node's agent failed, its log says more: {error!r}"
        )


def _handler(kind: Callable[..., grpc.RpcMethodHandler], method: Any, request: str) -> grpc.RpcMethodHandler:
    return kind(
        method,
        request_deserializer=DEVICE_PLUGIN[request].FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )

"""Serves the device plugin: offers slots to the kubelet, mounts them, and has each prepared before its start.

A slot is a container's place on the node, not an amount of memory. There is one for each client that the GPUs
admit, whatever its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import grpc

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.hardware.enforcers.enforcer import Attachment
from cotenant.kube.agent.classic import device_ids
from cotenant.kube.agent.classic.registration import Registration
from cotenant.kube.agent.slots.mounts import Simulation, allocation
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots
from cotenant.kube.agent.slots.owner import SlotOwner
from cotenant.kube.logs import get_logger
from cotenant.kube.protos import device_plugin_v1beta1 as v1beta1
from cotenant.kube.protos.grpc_calls import Context, serve, service_handler

log = get_logger(__name__)
_START_TIMEOUT = 25.0
"""Seconds to prepare a slot. The kubelet gives up after 30, and its message explains less than ours."""

_OPTIONS = v1beta1.DevicePluginOptions(pre_start_required=True)

Response = TypeVar("Response")


class SlotStarter(Protocol):
    """`agent/slots/starting.py`"""

    async def start(self, device: str) -> SlotOwner:
        """Writes the limits of the container that is about to start with this device."""


class ComputeEnforcer(Protocol):
    """`agent/mps/part.py`"""

    def attachment(self) -> Attachment:
        """Returns what each GPU container is started with."""

    async def prepare(self, slot: NodeSlot) -> None:
        """Makes a slot ready whose container is about to start."""


class DevicePlugin:
    """Serves `cotenant.dev/gpu-slot` while `run` runs."""

    def __init__(
        self,
        kubelet: Path,
        slots: NodeSlots,
        starter: SlotStarter,
        simulation: Simulation | None = None,
        compute: ComputeEnforcer | None = None,
        *,
        start_timeout: float = _START_TIMEOUT,
    ) -> None:
        """`kubelet` is the kubelet's folder; `simulation` is None where the GPUs are real, `compute` where
        nothing holds containers to a share of compute.
        """
        self._slots = slots
        self._starter = starter
        self._simulation = simulation
        self._compute = compute
        self._start_timeout = start_timeout
        self._count = device_ids.count_for(slots.keys())
        self._changed = asyncio.Condition()
        self._registration = Registration(
            folder=kubelet / "device-plugins",
            resource=names.GPU_SLOT,
            options=_OPTIONS,
            handler=service_handler(
                serve(v1beta1.DevicePlugin.GetDevicePluginOptions, self._get_options),
                serve(v1beta1.DevicePlugin.ListAndWatch, self._list_and_watch),
                serve(v1beta1.DevicePlugin.Allocate, self._allocate),
                serve(v1beta1.DevicePlugin.PreStartContainer, self._pre_start_container),
            ),
        )

    @property
    def registered_since(self) -> float | None:
        """Unix time of the registration; None while the kubelet does not watch this plugin's devices."""
        return self._registration.since

    @property
    def count(self) -> int:
        """The number of slots that are offered."""
        return self._count

    async def offer(self, count: int) -> None:
        """Offers `count` slots, but never fewer than before: a kubelet that restarts rejects running pods
        whose device is gone.
        """
        async with self._changed:
            self._count = max(self._count, count)
            self._changed.notify_all()

    async def run(self) -> None:
        """Serves and stays registered, also when the kubelet restarts, until it is cancelled."""
        await self._registration.run()

    async def _get_options(self, _request: v1beta1.Empty, _context: Context) -> v1beta1.DevicePluginOptions:
        return _OPTIONS

    async def _list_and_watch(
        self, _request: v1beta1.Empty, _context: Context
    ) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        with self._registration.listening():
            sent = -1
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._count != sent)  # noqa: B023 - called at once
                    sent = self._count
                devices = [v1beta1.Device(ID=device_ids.device_id(n), health="Healthy") for n in range(sent)]
                yield v1beta1.ListAndWatchResponse(devices=devices)

    async def _allocate(self, request: v1beta1.AllocateRequest, context: Context) -> v1beta1.AllocateResponse:
        return await _or_abort(context, self._mounts(request))

    async def _mounts(self, request: v1beta1.AllocateRequest) -> v1beta1.AllocateResponse:
        """The request names no pod, and none is needed: limits are written when the container starts."""
        responses = []
        for container in request.container_requests:
            folder = self._slots.prepare(_only(container.devices_ids))
            compute = self._compute.attachment() if self._compute is not None else None
            allocated = allocation(self._slots.enforcer, folder, self._simulation, compute)
            mounts = [
                v1beta1.Mount(
                    container_path=str(mount.container), host_path=str(mount.host), read_only=mount.read_only
                )
                for mount in allocated.mounts
            ]
            responses.append(v1beta1.ContainerAllocateResponse(envs=allocated.environment, mounts=mounts))
        return v1beta1.AllocateResponse(container_responses=responses)

    async def _pre_start_container(
        self, request: v1beta1.PreStartContainerRequest, context: Context
    ) -> v1beta1.PreStartContainerResponse:
        return await _or_abort(context, self._start(request))

    async def _start(self, request: v1beta1.PreStartContainerRequest) -> v1beta1.PreStartContainerResponse:
        device = _only(request.devices_ids)
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._starter.start(device)
                slot = self._slots.find(device)
                if self._compute is not None and slot is not None:
                    await self._compute.prepare(slot)
        except TimeoutError:
            raise CotenantError(
                f"{device}: its slot was not ready in {self._start_timeout:.0f} s. The kubelet will try again"
            ) from None
        return v1beta1.PreStartContainerResponse()


def _only(devices: Sequence[str]) -> str:
    if len(devices) != 1:
        raise CotenantError(
            f"a container has one slot, and {len(devices)} were asked for: leave {names.GPU_SLOT} to "
            f"Cotenant, and ask for {names.GPU_MEMORY} or {names.GPU}"
        )
    return device_ids.check(devices[0])


async def _or_abort(context: Context, work: Awaitable[Response]) -> Response:
    """Reports failures to the kubelet, which writes them into the pod's events."""
    try:
        return await work
    except CotenantError as error:
        log.warning("call of the kubelet refused", error=error)
        code, text = grpc.StatusCode.FAILED_PRECONDITION, f"cotenant: {error}"
    except Exception as error:
        log.exception("call of the kubelet failed")
        code, text = (
            grpc.StatusCode.INTERNAL,
            f"cotenant: the node's agent failed; see its log for details: {error!r}",
        )
    await context.abort(code, text)
    raise AssertionError("abort always raises")

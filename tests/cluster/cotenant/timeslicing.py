"""Plays NVIDIA's device plugin with time-slicing: it offers one simulated card several times, and limits nothing.

    python -m cluster.cotenant.timeslicing STATE LIBRARIES TURNS

Every container that gets a turn finds the stand-in driver and the whole card, as NVIDIA's runtime would show it. Ids of
devices are those of NVIDIA's plugin: the card's UUID, `::` and the number of the turn. Ended by SIGTERM it offers nothing
first, so that the kubelet forgets it at once and not after five minutes.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from cotenant.hardware.standin import driver as standin
from cotenant.kube.agent.classic.channel import kubelet_channel
from cotenant.kube.protos import device_plugin_v1beta1 as v1beta1
from cotenant.kube.protos.grpc_calls import call, serve, service_handler

RESOURCE = "nvidia.com/gpu"
FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET = "nvidia-gpu.sock"
IN_CONTAINER = Path("/usr/local/nvidia")


class TimeSlicing:
    def __init__(self, state: Path, libraries: Path, turns: int) -> None:
        (card,) = standin.StandIn(state).cards()
        self._state, self._libraries = state, libraries
        self._ids = [f"{card.uuid}::{turn}" for turn in range(turns)]
        self._ended = asyncio.Event()
        self._forgotten = asyncio.Event()

    async def run(self) -> None:
        server = grpc.aio.server()
        options = serve(v1beta1.DevicePlugin.GetDevicePluginOptions, self._options)
        devices = serve(v1beta1.DevicePlugin.ListAndWatch, self._devices)
        handlers = service_handler(options, devices, serve(v1beta1.DevicePlugin.Allocate, self._allocate))
        server.add_generic_rpc_handlers((handlers,))
        (FOLDER / SOCKET).unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{FOLDER / SOCKET}")
        await server.start()
        async with kubelet_channel(FOLDER / "kubelet.sock") as channel:
            asked = v1beta1.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE)
            await call(channel, v1beta1.Registration.Register)(asked, timeout=10.0)
        print("registered", flush=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ended.set)
        await self._forgotten.wait()
        await asyncio.sleep(0.5)
        await server.stop(0)

    async def _options(self, _request: Any, _context: Any) -> v1beta1.DevicePluginOptions:
        return v1beta1.DevicePluginOptions()

    async def _devices(self, _request: Any, _context: Any) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        offered = [v1beta1.Device(ID=each, health="Healthy") for each in self._ids]
        yield v1beta1.ListAndWatchResponse(devices=offered)
        await self._ended.wait()
        yield v1beta1.ListAndWatchResponse(devices=[])
        self._forgotten.set()
        await asyncio.Event().wait()

    async def _allocate(self, request: v1beta1.AllocateRequest, _context: Any) -> v1beta1.AllocateResponse:
        libraries, state = IN_CONTAINER / "lib", IN_CONTAINER / "state"
        mounts = [
            v1beta1.Mount(container_path=str(libraries), host_path=str(self._libraries), read_only=True),
            v1beta1.Mount(container_path=str(state), host_path=str(self._state), read_only=False),
        ]
        environment = {"LD_LIBRARY_PATH": str(libraries), standin.VARIABLE: str(state)}
        one = v1beta1.ContainerAllocateResponse(envs=environment, mounts=mounts)
        return v1beta1.AllocateResponse(container_responses=[one] * len(request.container_requests))


if __name__ == "__main__":
    asyncio.run(TimeSlicing(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).run())

"""A kubelet's sockets, as far as a device plugin sees them: registration and pod-resources, over real gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio

from cotenant.kube.protos import device_plugin_v1beta1, pod_resources_v1
from cotenant.kube.protos.grpc_calls import call, serve, service_handler

DevicePlugin = device_plugin_v1beta1.DevicePlugin
SLOT = "cotenant.dev/gpu-slot"


class Kubelet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = folder / "device-plugins"
        self.plugins.mkdir(exist_ok=True)
        (folder / "pod-resources").mkdir(exist_ok=True)
        self.pod_resources = folder / "pod-resources" / "kubelet.sock"
        self.registered = []
        self.listed = 0
        self.refusals = 0
        """How many of the next questions are refused as too many."""
        self.holders: list[tuple[str, str, str, list[str]]] = []
        """namespace, pod, container, devices"""
        self._servers = []
        self.watches = False
        self.known: set[str] = set()
        """Endpoints that it was ever connected to; forgotten by a restart."""
        self.open: set[str] = set()
        self.open_at_register: list[set[str]] = []
        """The streams that were open at each attempt to register."""
        self.devices = 0
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """As a real one: empties the folder first."""
        for left in self.plugins.iterdir():
            left.unlink()
        self._servers = [
            await self._serve(
                self.plugins / "kubelet.sock",
                serve(device_plugin_v1beta1.Registration.Register, self._register),
            ),
            await self._serve(
                self.pod_resources, serve(pod_resources_v1.PodResourcesLister.List, self._list)
            ),
        ]

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop(None)
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers.clear()
        self.known.clear()

    @contextlib.asynccontextmanager
    async def plugin(self) -> AsyncIterator["Plugin"]:
        """The one that registered last."""
        async with grpc.aio.insecure_channel(self._address(self.registered[-1].endpoint)) as channel:
            yield Plugin(channel)

    def _address(self, endpoint: str) -> str:
        return f"unix:{self.plugins / endpoint}"

    async def _serve(self, socket, method):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((service_handler(method),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return server

    async def _register(self, request, context):
        """As 1.37.1: refuses a path that it has a stream to. `watches` makes it open one itself, as a real one."""
        self.open_at_register.append(set(self.open))
        if request.endpoint in self.known:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "endpoint is connected already")
        self.registered.append(request)
        if self.watches:
            self.known.add(request.endpoint)
            self._watchers.append(asyncio.create_task(self._watch(request.endpoint)))
        return device_plugin_v1beta1.Empty()

    async def _watch(self, endpoint: str) -> None:
        self.open.add(endpoint)
        try:
            async with grpc.aio.insecure_channel(self._address(endpoint)) as channel:
                async for told in Plugin(channel).watch():
                    self.devices = len(told.devices)
        except grpc.aio.AioRpcError:
            pass
        finally:
            self.open.discard(endpoint)

    async def _list(self, request, context):
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self.listed += 1
        return pod_resources_v1.ListPodResourcesResponse(
            pod_resources=[self._pod(*each) for each in self.holders]
        )

    def _pod(self, namespace, pod, container, devices):
        held = pod_resources_v1.ContainerDevices(resource_name=SLOT, device_ids=devices)
        return pod_resources_v1.PodResources(
            name=pod,
            namespace=namespace,
            containers=[pod_resources_v1.ContainerResources(name=container, devices=[held])],
        )


class Plugin:
    """A device plugin as its kubelet calls it."""

    def __init__(self, channel) -> None:
        self._channel = channel

    async def options(self):
        return await self._call(DevicePlugin.GetDevicePluginOptions, device_plugin_v1beta1.Empty())

    async def allocate(self, *devices):
        asked = device_plugin_v1beta1.ContainerAllocateRequest(devices_ids=devices)
        request = device_plugin_v1beta1.AllocateRequest(container_requests=[asked])
        return (await self._call(DevicePlugin.Allocate, request)).container_responses[0]

    async def pre_start(self, *devices):
        request = device_plugin_v1beta1.PreStartContainerRequest(devices_ids=devices)
        return await self._call(DevicePlugin.PreStartContainer, request)

    def watch(self):
        return call(self._channel, DevicePlugin.ListAndWatch)(device_plugin_v1beta1.Empty())

    async def _call(self, method, request):
        return await call(self._channel, method)(request, timeout=20)

"""A kubelet's sockets, as far as a device plugin sees them: registration and pod-resources, over real gRPC."""

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

    @contextlib.asynccontextmanager
    async def plugin(self) -> AsyncIterator["Plugin"]:
        async with grpc.aio.insecure_channel(f"unix:{self.plugins / 'cotenant.sock'}") as channel:
            yield Plugin(channel)

    async def _serve(self, socket, method):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((service_handler(method),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return server

    async def _register(self, request, context):
        self.registered.append(request)
        return device_plugin_v1beta1.Empty()

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

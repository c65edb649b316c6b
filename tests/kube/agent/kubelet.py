"""A kubelet's sockets, as far as a device plugin sees them: registration and pod-resources, over real gRPC."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio

from cotenant.kube.agent.classic.messages import DEVICE_PLUGIN, POD_RESOURCES

SLOT = "cotenant.dev/gpu-slot"


def unary(method, request):
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


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
                "v1beta1.Registration",
                {"Register": unary(self._register, DEVICE_PLUGIN["RegisterRequest"])},
            ),
            await self._serve(
                self.pod_resources,
                "v1.PodResourcesLister",
                {"List": unary(self._list, POD_RESOURCES["ListPodResourcesRequest"])},
            ),
        ]

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop(None)

    @contextlib.asynccontextmanager
    async def plugin(self) -> AsyncIterator["Plugin"]:
        async with grpc.aio.insecure_channel(f"unix:{self.plugins / 'cotenant.sock'}") as channel:
            yield Plugin(channel)

    async def _serve(self, socket, service, methods):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return server

    async def _register(self, request, context):
        self.registered.append(request)
        return DEVICE_PLUGIN["Empty"]()

    async def _list(self, request, context):
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self.listed += 1
        return POD_RESOURCES["ListPodResourcesResponse"](
            pod_resources=[self._pod(*each) for each in self.holders]
        )

    def _pod(self, namespace, pod, container, devices):
        held = POD_RESOURCES["ContainerDevices"](resource_name=SLOT, device_ids=devices)
        return POD_RESOURCES["PodResources"](
            name=pod,
            namespace=namespace,
            containers=[POD_RESOURCES["ContainerResources"](name=container, devices=[held])],
        )


class Plugin:
    """A device plugin as its kubelet calls it."""

    def __init__(self, channel) -> None:
        self._channel = channel

    async def options(self):
        return await self._call("GetDevicePluginOptions", DEVICE_PLUGIN["Empty"](), "DevicePluginOptions")

    async def allocate(self, *devices):
        asked = DEVICE_PLUGIN["ContainerAllocateRequest"](devices_ids=devices)
        answer = await self._call(
            "Allocate", DEVICE_PLUGIN["AllocateRequest"](container_requests=[asked]), "AllocateResponse"
        )
        return answer.container_responses[0]

    async def pre_start(self, *devices):
        request = DEVICE_PLUGIN["PreStartContainerRequest"](devices_ids=devices)
        return await self._call("PreStartContainer", request, "PreStartContainerResponse")

    def watch(self):
        return self._channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=DEVICE_PLUGIN["Empty"].SerializeToString,
            response_deserializer=DEVICE_PLUGIN["ListAndWatchResponse"].FromString,
        )(DEVICE_PLUGIN["Empty"]())

    async def _call(self, method, request, answer):
        call = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=DEVICE_PLUGIN[answer].FromString,
        )
        return await call(request, timeout=20)

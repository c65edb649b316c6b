# Types of k8s.io/kubelet/pkg/apis/dra-health/v1alpha1/api.proto. Made by `make protos`: do not edit.

from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message
from cotenant.kube.protos.loader import StreamMethod

class HealthStatus(IntEnum):
    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2

class NodeWatchResourcesRequest(Message): ...

class DeviceIdentifier(Message):
    pool_name: str
    device_name: str
    def __init__(
        self,
        *,
        pool_name: str = ...,
        device_name: str = ...,
    ) -> None: ...

class DeviceHealth(Message):
    @property
    def device(self) -> DeviceIdentifier: ...
    health: int
    last_updated_time: int
    health_check_timeout_seconds: int
    message: str
    def __init__(
        self,
        *,
        device: DeviceIdentifier | None = ...,
        health: int = ...,
        last_updated_time: int = ...,
        health_check_timeout_seconds: int = ...,
        message: str = ...,
    ) -> None: ...

class NodeWatchResourcesResponse(Message):
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[DeviceHealth]: ...
    def __init__(
        self,
        *,
        devices: Iterable[DeviceHealth] = ...,
    ) -> None: ...

class DRAResourceHealth:
    NodeWatchResources: ClassVar[StreamMethod[NodeWatchResourcesRequest, NodeWatchResourcesResponse]]

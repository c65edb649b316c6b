# Types of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto. Made by `make protos`: do not edit.

from collections.abc import Iterable, Mapping
from typing import ClassVar
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer, ScalarMap
from google.protobuf.message import Message
from cotenant.kube.protos.loader import StreamMethod, UnaryMethod

class DevicePluginOptions(Message):
    pre_start_required: bool
    get_preferred_allocation_available: bool
    def __init__(
        self,
        *,
        pre_start_required: bool = ...,
        get_preferred_allocation_available: bool = ...,
    ) -> None: ...

class RegisterRequest(Message):
    version: str
    endpoint: str
    resource_name: str
    @property
    def options(self) -> DevicePluginOptions: ...
    def __init__(
        self,
        *,
        version: str = ...,
        endpoint: str = ...,
        resource_name: str = ...,
        options: DevicePluginOptions | None = ...,
    ) -> None: ...

class Empty(Message): ...

class ListAndWatchResponse(Message):
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[Device]: ...
    def __init__(
        self,
        *,
        devices: Iterable[Device] = ...,
    ) -> None: ...

class TopologyInfo(Message):
    @property
    def nodes(self) -> RepeatedCompositeFieldContainer[NUMANode]: ...
    def __init__(
        self,
        *,
        nodes: Iterable[NUMANode] = ...,
    ) -> None: ...

class NUMANode(Message):
    ID: int
    def __init__(
        self,
        *,
        ID: int = ...,
    ) -> None: ...

class Device(Message):
    ID: str
    health: str
    @property
    def topology(self) -> TopologyInfo: ...
    def __init__(
        self,
        *,
        ID: str = ...,
        health: str = ...,
        topology: TopologyInfo | None = ...,
    ) -> None: ...

class PreStartContainerRequest(Message):
    @property
    def devices_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        devices_ids: Iterable[str] = ...,
    ) -> None: ...

class PreStartContainerResponse(Message): ...

class PreferredAllocationRequest(Message):
    @property
    def container_requests(self) -> RepeatedCompositeFieldContainer[ContainerPreferredAllocationRequest]: ...
    def __init__(
        self,
        *,
        container_requests: Iterable[ContainerPreferredAllocationRequest] = ...,
    ) -> None: ...

class ContainerPreferredAllocationRequest(Message):
    @property
    def available_deviceIDs(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def must_include_deviceIDs(self) -> RepeatedScalarFieldContainer[str]: ...
    allocation_size: int
    def __init__(
        self,
        *,
        available_deviceIDs: Iterable[str] = ...,
        must_include_deviceIDs: Iterable[str] = ...,
        allocation_size: int = ...,
    ) -> None: ...

class PreferredAllocationResponse(Message):
    @property
    def container_responses(self) -> RepeatedCompositeFieldContainer[ContainerPreferredAllocationResponse]: ...
    def __init__(
        self,
        *,
        container_responses: Iterable[ContainerPreferredAllocationResponse] = ...,
    ) -> None: ...

class ContainerPreferredAllocationResponse(Message):
    @property
    def deviceIDs(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        deviceIDs: Iterable[str] = ...,
    ) -> None: ...

class AllocateRequest(Message):
    @property
    def container_requests(self) -> RepeatedCompositeFieldContainer[ContainerAllocateRequest]: ...
    def __init__(
        self,
        *,
        container_requests: Iterable[ContainerAllocateRequest] = ...,
    ) -> None: ...

class ContainerAllocateRequest(Message):
    @property
    def devices_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        devices_ids: Iterable[str] = ...,
    ) -> None: ...

class CDIDevice(Message):
    name: str
    def __init__(
        self,
        *,
        name: str = ...,
    ) -> None: ...

class AllocateResponse(Message):
    @property
    def container_responses(self) -> RepeatedCompositeFieldContainer[ContainerAllocateResponse]: ...
    def __init__(
        self,
        *,
        container_responses: Iterable[ContainerAllocateResponse] = ...,
    ) -> None: ...

class ContainerAllocateResponse(Message):
    @property
    def envs(self) -> ScalarMap[str, str]: ...
    @property
    def mounts(self) -> RepeatedCompositeFieldContainer[Mount]: ...
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[DeviceSpec]: ...
    @property
    def annotations(self) -> ScalarMap[str, str]: ...
    @property
    def cdi_devices(self) -> RepeatedCompositeFieldContainer[CDIDevice]: ...
    def __init__(
        self,
        *,
        envs: Mapping[str, str] = ...,
        mounts: Iterable[Mount] = ...,
        devices: Iterable[DeviceSpec] = ...,
        annotations: Mapping[str, str] = ...,
        cdi_devices: Iterable[CDIDevice] = ...,
    ) -> None: ...

class Mount(Message):
    container_path: str
    host_path: str
    read_only: bool
    def __init__(
        self,
        *,
        container_path: str = ...,
        host_path: str = ...,
        read_only: bool = ...,
    ) -> None: ...

class DeviceSpec(Message):
    container_path: str
    host_path: str
    permissions: str
    def __init__(
        self,
        *,
        container_path: str = ...,
        host_path: str = ...,
        permissions: str = ...,
    ) -> None: ...

class Registration:
    Register: ClassVar[UnaryMethod[RegisterRequest, Empty]]

class DevicePlugin:
    GetDevicePluginOptions: ClassVar[UnaryMethod[Empty, DevicePluginOptions]]
    ListAndWatch: ClassVar[StreamMethod[Empty, ListAndWatchResponse]]
    GetPreferredAllocation: ClassVar[UnaryMethod[PreferredAllocationRequest, PreferredAllocationResponse]]
    Allocate: ClassVar[UnaryMethod[AllocateRequest, AllocateResponse]]
    PreStartContainer: ClassVar[UnaryMethod[PreStartContainerRequest, PreStartContainerResponse]]

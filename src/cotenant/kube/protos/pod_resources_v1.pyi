# Types of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. Made by `make protos`: do not edit.

from collections.abc import Iterable
from typing import ClassVar
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message
from cotenant.kube.protos.loader import UnaryMethod

class AllocatableResourcesRequest(Message): ...

class AllocatableResourcesResponse(Message):
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[ContainerDevices]: ...
    @property
    def cpu_ids(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def memory(self) -> RepeatedCompositeFieldContainer[ContainerMemory]: ...
    def __init__(
        self,
        *,
        devices: Iterable[ContainerDevices] = ...,
        cpu_ids: Iterable[int] = ...,
        memory: Iterable[ContainerMemory] = ...,
    ) -> None: ...

class ListPodResourcesRequest(Message): ...

class ListPodResourcesResponse(Message):
    @property
    def pod_resources(self) -> RepeatedCompositeFieldContainer[PodResources]: ...
    def __init__(
        self,
        *,
        pod_resources: Iterable[PodResources] = ...,
    ) -> None: ...

class PodResources(Message):
    name: str
    namespace: str
    @property
    def containers(self) -> RepeatedCompositeFieldContainer[ContainerResources]: ...
    @property
    def cpu_ids(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def memory(self) -> RepeatedCompositeFieldContainer[ContainerMemory]: ...
    def __init__(
        self,
        *,
        name: str = ...,
        namespace: str = ...,
        containers: Iterable[ContainerResources] = ...,
        cpu_ids: Iterable[int] = ...,
        memory: Iterable[ContainerMemory] = ...,
    ) -> None: ...

class ContainerResources(Message):
    name: str
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[ContainerDevices]: ...
    @property
    def cpu_ids(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def memory(self) -> RepeatedCompositeFieldContainer[ContainerMemory]: ...
    @property
    def dynamic_resources(self) -> RepeatedCompositeFieldContainer[DynamicResource]: ...
    def __init__(
        self,
        *,
        name: str = ...,
        devices: Iterable[ContainerDevices] = ...,
        cpu_ids: Iterable[int] = ...,
        memory: Iterable[ContainerMemory] = ...,
        dynamic_resources: Iterable[DynamicResource] = ...,
    ) -> None: ...

class ContainerMemory(Message):
    memory_type: str
    size: int
    @property
    def topology(self) -> TopologyInfo: ...
    def __init__(
        self,
        *,
        memory_type: str = ...,
        size: int = ...,
        topology: TopologyInfo | None = ...,
    ) -> None: ...

class ContainerDevices(Message):
    resource_name: str
    @property
    def device_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def topology(self) -> TopologyInfo: ...
    def __init__(
        self,
        *,
        resource_name: str = ...,
        device_ids: Iterable[str] = ...,
        topology: TopologyInfo | None = ...,
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

class DynamicResource(Message):
    claim_name: str
    claim_namespace: str
    @property
    def claim_resources(self) -> RepeatedCompositeFieldContainer[ClaimResource]: ...
    def __init__(
        self,
        *,
        claim_name: str = ...,
        claim_namespace: str = ...,
        claim_resources: Iterable[ClaimResource] = ...,
    ) -> None: ...

class ClaimResource(Message):
    @property
    def cdi_devices(self) -> RepeatedCompositeFieldContainer[CDIDevice]: ...
    driver_name: str
    pool_name: str
    device_name: str
    share_id: str
    def __init__(
        self,
        *,
        cdi_devices: Iterable[CDIDevice] = ...,
        driver_name: str = ...,
        pool_name: str = ...,
        device_name: str = ...,
        share_id: str | None = ...,
    ) -> None: ...

class CDIDevice(Message):
    name: str
    def __init__(
        self,
        *,
        name: str = ...,
    ) -> None: ...

class GetPodResourcesRequest(Message):
    pod_name: str
    pod_namespace: str
    def __init__(
        self,
        *,
        pod_name: str = ...,
        pod_namespace: str = ...,
    ) -> None: ...

class GetPodResourcesResponse(Message):
    @property
    def pod_resources(self) -> PodResources: ...
    def __init__(
        self,
        *,
        pod_resources: PodResources | None = ...,
    ) -> None: ...

class PodResourcesLister:
    List: ClassVar[UnaryMethod[ListPodResourcesRequest, ListPodResourcesResponse]]
    GetAllocatableResources: ClassVar[UnaryMethod[AllocatableResourcesRequest, AllocatableResourcesResponse]]
    Get: ClassVar[UnaryMethod[GetPodResourcesRequest, GetPodResourcesResponse]]

# Types of k8s.io/kubelet/pkg/apis/dra/v1beta1/api.proto. Made by `make protos`: do not edit.

from collections.abc import Iterable, Mapping
from typing import ClassVar
from google.protobuf.internal.containers import MessageMap, RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message
from cotenant.kube.protos.loader import UnaryMethod

class NodePrepareResourcesRequest(Message):
    @property
    def claims(self) -> RepeatedCompositeFieldContainer[Claim]: ...
    def __init__(
        self,
        *,
        claims: Iterable[Claim] = ...,
    ) -> None: ...

class NodePrepareResourcesResponse(Message):
    @property
    def claims(self) -> MessageMap[str, NodePrepareResourceResponse]: ...
    def __init__(
        self,
        *,
        claims: Mapping[str, NodePrepareResourceResponse] = ...,
    ) -> None: ...

class NodePrepareResourceResponse(Message):
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[Device]: ...
    error: str
    def __init__(
        self,
        *,
        devices: Iterable[Device] = ...,
        error: str = ...,
    ) -> None: ...

class Device(Message):
    @property
    def request_names(self) -> RepeatedScalarFieldContainer[str]: ...
    pool_name: str
    device_name: str
    @property
    def cdi_device_ids(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        request_names: Iterable[str] = ...,
        pool_name: str = ...,
        device_name: str = ...,
        cdi_device_ids: Iterable[str] = ...,
    ) -> None: ...

class NodeUnprepareResourcesRequest(Message):
    @property
    def claims(self) -> RepeatedCompositeFieldContainer[Claim]: ...
    def __init__(
        self,
        *,
        claims: Iterable[Claim] = ...,
    ) -> None: ...

class NodeUnprepareResourcesResponse(Message):
    @property
    def claims(self) -> MessageMap[str, NodeUnprepareResourceResponse]: ...
    def __init__(
        self,
        *,
        claims: Mapping[str, NodeUnprepareResourceResponse] = ...,
    ) -> None: ...

class NodeUnprepareResourceResponse(Message):
    error: str
    def __init__(
        self,
        *,
        error: str = ...,
    ) -> None: ...

class Claim(Message):
    namespace: str
    uid: str
    name: str
    def __init__(
        self,
        *,
        namespace: str = ...,
        uid: str = ...,
        name: str = ...,
    ) -> None: ...

class DRAPlugin:
    NodePrepareResources: ClassVar[UnaryMethod[NodePrepareResourcesRequest, NodePrepareResourcesResponse]]
    NodeUnprepareResources: ClassVar[UnaryMethod[NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse]]

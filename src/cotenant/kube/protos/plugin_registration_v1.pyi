# Types of k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto. Made by `make protos`: do not edit.

from collections.abc import Iterable
from typing import ClassVar
from google.protobuf.internal.containers import RepeatedScalarFieldContainer
from google.protobuf.message import Message
from cotenant.kube.protos.loader import UnaryMethod

class PluginInfo(Message):
    type: str
    name: str
    endpoint: str
    @property
    def supported_versions(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        type: str = ...,
        name: str = ...,
        endpoint: str = ...,
        supported_versions: Iterable[str] = ...,
    ) -> None: ...

class RegistrationStatus(Message):
    plugin_registered: bool
    error: str
    def __init__(
        self,
        *,
        plugin_registered: bool = ...,
        error: str = ...,
    ) -> None: ...

class RegistrationStatusResponse(Message): ...

class InfoRequest(Message): ...

class Registration:
    GetInfo: ClassVar[UnaryMethod[InfoRequest, PluginInfo]]
    NotifyRegistrationStatus: ClassVar[UnaryMethod[RegistrationStatus, RegistrationStatusResponse]]

# Types of github.com/kedacore/keda/v2/pkg/scalers/externalscaler/externalscaler.proto. Made by `make protos`: do not edit.

from collections.abc import Iterable, Mapping
from typing import ClassVar
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, ScalarMap
from google.protobuf.message import Message
from cotenant.kube.protos.loader import StreamMethod, UnaryMethod

class ScaledObjectRef(Message):
    name: str
    namespace: str
    @property
    def scalerMetadata(self) -> ScalarMap[str, str]: ...
    def __init__(
        self,
        *,
        name: str = ...,
        namespace: str = ...,
        scalerMetadata: Mapping[str, str] = ...,
    ) -> None: ...

class IsActiveResponse(Message):
    result: bool
    def __init__(
        self,
        *,
        result: bool = ...,
    ) -> None: ...

class GetMetricSpecResponse(Message):
    @property
    def metricSpecs(self) -> RepeatedCompositeFieldContainer[MetricSpec]: ...
    def __init__(
        self,
        *,
        metricSpecs: Iterable[MetricSpec] = ...,
    ) -> None: ...

class MetricSpec(Message):
    metricName: str
    targetSize: int
    targetSizeFloat: float
    def __init__(
        self,
        *,
        metricName: str = ...,
        targetSize: int = ...,
        targetSizeFloat: float = ...,
    ) -> None: ...

class GetMetricsRequest(Message):
    @property
    def scaledObjectRef(self) -> ScaledObjectRef: ...
    metricName: str
    def __init__(
        self,
        *,
        scaledObjectRef: ScaledObjectRef | None = ...,
        metricName: str = ...,
    ) -> None: ...

class GetMetricsResponse(Message):
    @property
    def metricValues(self) -> RepeatedCompositeFieldContainer[MetricValue]: ...
    def __init__(
        self,
        *,
        metricValues: Iterable[MetricValue] = ...,
    ) -> None: ...

class MetricValue(Message):
    metricName: str
    metricValue: int
    metricValueFloat: float
    def __init__(
        self,
        *,
        metricName: str = ...,
        metricValue: int = ...,
        metricValueFloat: float = ...,
    ) -> None: ...

class ExternalScaler:
    IsActive: ClassVar[UnaryMethod[ScaledObjectRef, IsActiveResponse]]
    StreamIsActive: ClassVar[StreamMethod[ScaledObjectRef, IsActiveResponse]]
    GetMetricSpec: ClassVar[UnaryMethod[ScaledObjectRef, GetMetricSpecResponse]]
    GetMetrics: ClassVar[UnaryMethod[GetMetricsRequest, GetMetricsResponse]]
    StreamMetricSpec: ClassVar[StreamMethod[ScaledObjectRef, GetMetricSpecResponse]]

"""Messages and methods of github.com/kedacore/keda/v2/pkg/scalers/externalscaler/externalscaler.proto.

Made by `make protos`: do not edit.
"""

from cotenant.kube.protos.loader import load

_api = load("github.com/kedacore/keda/v2/pkg/scalers/externalscaler/externalscaler.proto")
ScaledObjectRef = _api.message("ScaledObjectRef")
IsActiveResponse = _api.message("IsActiveResponse")
GetMetricSpecResponse = _api.message("GetMetricSpecResponse")
MetricSpec = _api.message("MetricSpec")
GetMetricsRequest = _api.message("GetMetricsRequest")
GetMetricsResponse = _api.message("GetMetricsResponse")
MetricValue = _api.message("MetricValue")
ExternalScaler = _api.service("ExternalScaler")

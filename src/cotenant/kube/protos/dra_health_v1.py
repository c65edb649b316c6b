"""Messages and methods of k8s.io/kubelet/pkg/apis/dra-health/v1/api.proto.

Made by `make protos`: do not edit.
"""

from cotenant.kube.protos.loader import load

_api = load("k8s.io/kubelet/pkg/apis/dra-health/v1/api.proto")
NodeWatchResourcesRequest = _api.message("NodeWatchResourcesRequest")
DeviceIdentifier = _api.message("DeviceIdentifier")
DeviceHealth = _api.message("DeviceHealth")
NodeWatchResourcesResponse = _api.message("NodeWatchResourcesResponse")
HealthStatus = _api.enum("HealthStatus")
DRAResourceHealth = _api.service("DRAResourceHealth")

"""Messages and methods of k8s.io/kubelet/pkg/apis/dra/v1/api.proto.

Made by `make protos`: do not edit.
"""

from cotenant.kube.protos.loader import load

_api = load("k8s.io/kubelet/pkg/apis/dra/v1/api.proto")
NodePrepareResourcesRequest = _api.message("NodePrepareResourcesRequest")
NodePrepareResourcesResponse = _api.message("NodePrepareResourcesResponse")
NodePrepareResourceResponse = _api.message("NodePrepareResourceResponse")
Device = _api.message("Device")
NodeUnprepareResourcesRequest = _api.message("NodeUnprepareResourcesRequest")
NodeUnprepareResourcesResponse = _api.message("NodeUnprepareResourcesResponse")
NodeUnprepareResourceResponse = _api.message("NodeUnprepareResourceResponse")
Claim = _api.message("Claim")
DRAPlugin = _api.service("DRAPlugin")

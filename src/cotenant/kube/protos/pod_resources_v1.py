"""Messages and methods of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.

Made by `make protos`: do not edit.
"""

from cotenant.kube.protos.loader import load

_api = load("k8s.io/kubelet/pkg/apis/podresources/v1/api.proto")
AllocatableResourcesRequest = _api.message("AllocatableResourcesRequest")
AllocatableResourcesResponse = _api.message("AllocatableResourcesResponse")
ListPodResourcesRequest = _api.message("ListPodResourcesRequest")
ListPodResourcesResponse = _api.message("ListPodResourcesResponse")
PodResources = _api.message("PodResources")
ContainerResources = _api.message("ContainerResources")
ContainerMemory = _api.message("ContainerMemory")
ContainerDevices = _api.message("ContainerDevices")
TopologyInfo = _api.message("TopologyInfo")
NUMANode = _api.message("NUMANode")
DynamicResource = _api.message("DynamicResource")
ClaimResource = _api.message("ClaimResource")
CDIDevice = _api.message("CDIDevice")
GetPodResourcesRequest = _api.message("GetPodResourcesRequest")
GetPodResourcesResponse = _api.message("GetPodResourcesResponse")
PodResourcesLister = _api.service("PodResourcesLister")

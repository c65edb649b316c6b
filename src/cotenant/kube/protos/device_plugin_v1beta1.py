"""Messages and methods of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto.

Made by `make protos`: do not edit.
"""

from cotenant.kube.protos.loader import load

_api = load("k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto")
DevicePluginOptions = _api.message("DevicePluginOptions")
RegisterRequest = _api.message("RegisterRequest")
Empty = _api.message("Empty")
ListAndWatchResponse = _api.message("ListAndWatchResponse")
TopologyInfo = _api.message("TopologyInfo")
NUMANode = _api.message("NUMANode")
Device = _api.message("Device")
PreStartContainerRequest = _api.message("PreStartContainerRequest")
PreStartContainerResponse = _api.message("PreStartContainerResponse")
PreferredAllocationRequest = _api.message("PreferredAllocationRequest")
ContainerPreferredAllocationRequest = _api.message("ContainerPreferredAllocationRequest")
PreferredAllocationResponse = _api.message("PreferredAllocationResponse")
ContainerPreferredAllocationResponse = _api.message("ContainerPreferredAllocationResponse")
AllocateRequest = _api.message("AllocateRequest")
ContainerAllocateRequest = _api.message("ContainerAllocateRequest")
CDIDevice = _api.message("CDIDevice")
AllocateResponse = _api.message("AllocateResponse")
ContainerAllocateResponse = _api.message("ContainerAllocateResponse")
Mount = _api.message("Mount")
DeviceSpec = _api.message("DeviceSpec")
Registration = _api.service("Registration")
DevicePlugin = _api.service("DevicePlugin")

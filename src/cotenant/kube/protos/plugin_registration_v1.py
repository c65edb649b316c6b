"""Messages and methods of k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto.

Made by `make protos`: do not edit.
"""

from cotenant.kube.protos.loader import load

_api = load("k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto")
PluginInfo = _api.message("PluginInfo")
RegistrationStatus = _api.message("RegistrationStatus")
RegistrationStatusResponse = _api.message("RegistrationStatusResponse")
InfoRequest = _api.message("InfoRequest")
Registration = _api.service("Registration")

"""Messages of the kubelet and of KEDA: every type loads, and what goes over the wire is what the others expect."""

import struct

import pytest
from google.protobuf import descriptor_pb2

from cotenant.kube.protos import (
    device_plugin_v1beta1,
    dra_health_v1,
    dra_health_v1alpha1,
    dra_v1,
    dra_v1beta1,
    keda_external_scaler,
    plugin_registration_v1,
    pod_resources_v1,
)
from cotenant.kube.protos.loader import DESCRIPTORS, StreamMethod, UnaryMethod

MODULES = (
    device_plugin_v1beta1,
    dra_health_v1,
    dra_health_v1alpha1,
    dra_v1,
    dra_v1beta1,
    keda_external_scaler,
    plugin_registration_v1,
    pod_resources_v1,
)
FILES = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
TYPES = [(module, each) for module, file in zip(MODULES, FILES, strict=True) for each in file.message_type]


def field(number: int, content: bytes) -> bytes:
    """A text, a message or bytes on the wire, written by hand: tag, length, content."""
    assert number < 16
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def filled(message):
    """A value other than the default in every field, and in those of messages inside it."""
    for each in message.DESCRIPTOR.fields:
        target = getattr(message, each.name)
        if each.message_type is None:
            value = {str: "text", bool: True, float: 1.5, bytes: b"raw"}.get(type(each.default_value), 1)
            if isinstance(each.default_value, list):
                target.extend(["a", "b"] if each.cpp_type == each.CPPTYPE_STRING else [1, 2])
            else:
                setattr(message, each.name, value)
        elif each.message_type.GetOptions().map_entry:
            if each.message_type.fields_by_name["value"].message_type is None:
                target["key"] = "value"
            else:
                filled(target["key"])
        elif hasattr(target, "add"):
            filled(target.add())
        else:
            filled(target)
            target.SetInParent()
    return message


@pytest.mark.parametrize(
    ("module", "described"), TYPES, ids=[f"{m.__name__.rpartition('.')[2]}.{d.name}" for m, d in TYPES]
)
def test_every_message_comes_back_from_the_wire_as_it_was(module, described):
    kind = getattr(module, described.name)
    message = filled(kind())
    assert len(message.ListFields()) == len(described.field)
    assert kind.FromString(message.SerializeToString()) == message


def test_a_registration_has_the_bytes_that_the_kubelet_reads():
    message = device_plugin_v1beta1.RegisterRequest(
        version="v1beta1",
        endpoint="cotenant.sock",
        resource_name="cotenant.dev/gpu-slot",
        options=device_plugin_v1beta1.DevicePluginOptions(pre_start_required=True),
    )
    assert message.SerializeToString() == (
        field(1, b"v1beta1")
        + field(2, b"cotenant.sock")
        + field(3, b"cotenant.dev/gpu-slot")
        + field(4, b"\x08\x01")
    )


def test_an_allocation_has_the_bytes_that_the_kubelet_reads():
    mount = device_plugin_v1beta1.Mount(container_path="/in", host_path="/on", read_only=True)
    container = device_plugin_v1beta1.ContainerAllocateResponse(
        envs={"A": "1"}, mounts=[mount], cdi_devices=[device_plugin_v1beta1.CDIDevice(name="x.y/z=0")]
    )
    message = device_plugin_v1beta1.AllocateResponse(container_responses=[container])
    assert message.SerializeToString() == field(
        1,
        field(1, field(1, b"A") + field(2, b"1"))
        + field(2, field(1, b"/in") + field(2, b"/on") + b"\x18\x01")
        + field(5, field(1, b"x.y/z=0")),
    )


def test_a_claim_is_prepared_and_its_share_named():
    device = dra_v1.Device(
        request_names=["gpu"], pool_name="n1", device_name="gpu-0", cdi_device_ids=["x.y/z=0"], share_id="s"
    )
    message = dra_v1.NodePrepareResourcesResponse(
        claims={"u-1": dra_v1.NodePrepareResourceResponse(devices=[device])}
    )
    assert message.SerializeToString() == field(
        1,
        field(1, b"u-1")
        + field(
            2,
            field(
                1,
                field(1, b"gpu")
                + field(2, b"n1")
                + field(3, b"gpu-0")
                + field(4, b"x.y/z=0")
                + field(5, b"s"),
            ),
        ),
    )
    assert not dra_v1.Device().HasField("share_id")


def test_dra_v1beta1_has_the_same_claims_and_no_shares():
    claim = {"namespace": "default", "uid": "u-1", "name": "c"}
    old = dra_v1beta1.NodePrepareResourcesRequest(claims=[dra_v1beta1.Claim(**claim)])
    new = dra_v1.NodePrepareResourcesRequest(claims=[dra_v1.Claim(**claim)])
    assert old.SerializeToString() == new.SerializeToString()
    assert "share_id" not in dra_v1beta1.Device.DESCRIPTOR.fields_by_name


def test_a_metric_for_keda_is_a_double():
    value = keda_external_scaler.MetricValue(metricName="waiting", metricValueFloat=2.5)
    message = keda_external_scaler.GetMetricsResponse(metricValues=[value])
    assert message.SerializeToString() == field(1, field(1, b"waiting") + b"\x19" + struct.pack("<d", 2.5))
    request = keda_external_scaler.GetMetricsRequest(
        scaledObjectRef=keda_external_scaler.ScaledObjectRef(name="s", scalerMetadata={"queue": "q"}),
        metricName="waiting",
    )
    assert request.scaledObjectRef.scalerMetadata["queue"] == "q"


@pytest.mark.parametrize("module", [dra_health_v1, dra_health_v1alpha1])
def test_a_health_is_given_by_name(module):
    device = module.DeviceHealth(health=module.HealthStatus.UNHEALTHY)
    assert device.SerializeToString() == b"\x10\x02"
    assert device.health == module.HealthStatus.UNHEALTHY


@pytest.mark.parametrize(
    ("method", "kind", "path"),
    [
        (device_plugin_v1beta1.Registration.Register, UnaryMethod, "/v1beta1.Registration/Register"),
        (device_plugin_v1beta1.DevicePlugin.ListAndWatch, StreamMethod, "/v1beta1.DevicePlugin/ListAndWatch"),
        (pod_resources_v1.PodResourcesLister.List, UnaryMethod, "/v1.PodResourcesLister/List"),
        (
            plugin_registration_v1.Registration.GetInfo,
            UnaryMethod,
            "/pluginregistration.Registration/GetInfo",
        ),
        (
            dra_v1.DRAPlugin.NodePrepareResources,
            UnaryMethod,
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        ),
        (
            dra_health_v1.DRAResourceHealth.NodeWatchResources,
            StreamMethod,
            "/v1.DRAResourceHealth/NodeWatchResources",
        ),
        (
            keda_external_scaler.ExternalScaler.GetMetrics,
            UnaryMethod,
            "/externalscaler.ExternalScaler/GetMetrics",
        ),
    ],
)
def test_methods_have_the_path_that_the_other_side_calls(method, kind, path):
    assert (type(method), method.path) == (kind, path)


def test_a_method_takes_and_gives_the_classes_of_its_own_module():
    method = pod_resources_v1.PodResourcesLister.List
    assert method.request is pod_resources_v1.ListPodResourcesRequest
    assert method.response is pod_resources_v1.ListPodResourcesResponse


def test_no_file_of_the_descriptor_set_is_left_out():
    assert [file.name for file in FILES] == [module._api._file.name for module in MODULES]

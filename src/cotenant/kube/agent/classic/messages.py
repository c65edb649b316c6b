"""Protobuf messages of the kubelet's interfaces, made when they are imported.

Generated code refuses runtimes of other versions than its generator's, and images bring their own protobuf. A
description that is handed to the runtime has no version: it works with any. Only what we read and write is
described; protobuf passes over the rest. Each interface has a pool of its own, so that another package's
copy of the same messages does not collide with ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = Mapping[str, str]
"""Types by field name, in the order of their numbers: `string`, `[Device]` if repeated, `{string}` for a map
of texts.
"""

_SCALARS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


def messages(package: str, described: Mapping[str, Fields]) -> dict[str, type[Any]]:
    """Message classes by name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in described.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            _add_field(message, f".{package}", field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in described
    }


def _add_field(
    message: descriptor_pb2.DescriptorProto, package: str, name: str, number: int, kind: str
) -> None:
    repeated = kind[0] in "[{"
    field = message.field.add(
        name=name,
        number=number,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        if repeated
        else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    inner = kind.strip("[]{}")
    if kind[0] == "{":
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, package, "key", 1, "string")
        _add_field(entry, package, "value", 2, inner)
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{package}.{message.name}.{entry.name}"
    elif inner in _SCALARS:
        field.type = _SCALARS[inner]
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{package}.{inner}"


DEVICE_PLUGIN = messages(
    "v1beta1",
    {
        "Empty": {},
        "DevicePluginOptions": {"pre_start_required": "bool", "get_preferred_allocation_available": "bool"},
        "RegisterRequest": {
            "version": "string",
            "endpoint": "string",
            "resource_name": "string",
            "options": "DevicePluginOptions",
        },
        "Device": {"ID": "string", "health": "string"},
        "ListAndWatchResponse": {"devices": "[Device]"},
        "ContainerAllocateRequest": {"devices_ids": "[string]"},
        "AllocateRequest": {"container_requests": "[ContainerAllocateRequest]"},
        "Mount": {"container_path": "string", "host_path": "string", "read_only": "bool"},
        "ContainerAllocateResponse": {"envs": "{string}", "mounts": "[Mount]"},
        "AllocateResponse": {"container_responses": "[ContainerAllocateResponse]"},
        "PreStartContainerRequest": {"devices_ids": "[string]"},
        "PreStartContainerResponse": {},
    },
)
"""Of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1."""

POD_RESOURCES = messages(
    "v1",
    {
        "ListPodResourcesRequest": {},
        "ContainerDevices": {"resource_name": "string", "device_ids": "[string]"},
        "ContainerResources": {"name": "string", "devices": "[ContainerDevices]"},
        "PodResources": {"name": "string", "namespace": "string", "containers": "[ContainerResources]"},
        "ListPodResourcesResponse": {"pod_resources": "[PodResources]"},
    },
)
"""Of k8s.io/kubelet/pkg/apis/podresources/v1."""

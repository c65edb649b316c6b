"""Writes the Python module and the typed stub of one `.proto` file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

_INTEGERS = ("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "FIXED32", "FIXED64", "ENUM")
_SCALARS = {
    **{FieldDescriptorProto.Type.Value(f"TYPE_{name}"): "int" for name in _INTEGERS},
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "float",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_STRING: "str",
}
_IMPORTS = {
    "collections.abc": ("Iterable", "Mapping"),
    "enum": ("IntEnum",),
    "typing": ("ClassVar",),
    "google.protobuf.internal.containers": (
        "MessageMap",
        "RepeatedCompositeFieldContainer",
        "RepeatedScalarFieldContainer",
        "ScalarMap",
    ),
    "google.protobuf.message": ("Message",),
    "cotenant.kube.protos.loader": ("StreamMethod", "UnaryMethod"),
}


def module(file: FileDescriptorProto) -> str:
    """Writes the module: one name for each message, enum and service of the file."""
    lines = [
        f'{each.name} = _api.{kind}("{each.name}")'
        for kind, all_ in (
            ("message", file.message_type),
            ("enum", file.enum_type),
            ("service", file.service),
        )
        for each in all_
    ]
    head = f'"""Messages and methods of {file.name}.\n\nMade by `make protos`: do not edit.\n"""'
    load = f'from cotenant.kube.protos.loader import load\n\n_api = load("{file.name}")'
    return "\n".join([head, "", load, *lines, ""])


def stub(file: FileDescriptorProto) -> str:
    """Writes the stub that a type checker reads instead of the module."""
    if file.dependency:
        raise SystemExit(f"{file.name} imports {', '.join(file.dependency)}: load() knows single files only")
    classes = [
        *("\n".join(_enum(each)) for each in file.enum_type),
        *("\n".join(_message(each, file.package)) for each in file.message_type),
        *("\n".join(_service(each, file.package)) for each in file.service),
    ]
    body = "\n\n".join(classes)
    head = f"# Types of {file.name}. Made by `make protos`: do not edit."
    return "\n".join([head, "", *_imports(body), "", body, ""])


def _imports(body: str) -> Iterator[str]:
    """Writes the imports of those names that the text uses."""
    for source, names in _IMPORTS.items():
        used = [name for name in names if re.search(rf"\b{name}\b", body)]
        if used:
            yield f"from {source} import {', '.join(used)}"


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"class {enum.name}(IntEnum):"
    for value in enum.value:
        yield f"    {value.name} = {value.number}"


def _message(message: DescriptorProto, package: str) -> Iterator[str]:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    if len(entries) < len(message.nested_type) or message.enum_type:
        raise SystemExit(f"{message.name} declares types inside itself, which no API did so far")
    if not message.field:
        yield f"class {message.name}(Message): ..."
        return
    yield f"class {message.name}(Message):"
    arguments = []
    for field in message.field:
        attribute, argument = _types(field, entries, package)
        if field.type == FieldDescriptorProto.TYPE_MESSAGE or _repeated(field):
            yield "    @property"
            yield f"    def {field.name}(self) -> {attribute}: ..."
        else:
            yield f"    {field.name}: {attribute}"
        arguments.append(f"        {field.name}: {argument} = ...,")
    yield "    def __init__("
    yield "        self,"
    yield "        *,"
    yield from arguments
    yield "    ) -> None: ..."


def _service(service: ServiceDescriptorProto, package: str) -> Iterator[str]:
    yield f"class {service.name}:"
    for method in service.method:
        if method.client_streaming:
            raise SystemExit(f"{service.name}.{method.name} streams requests, which no API did so far")
        kind = "StreamMethod" if method.server_streaming else "UnaryMethod"
        types = f"{_local(method.input_type, package)}, {_local(method.output_type, package)}"
        yield f"    {method.name}: ClassVar[{kind}[{types}]]"


def _types(field: FieldDescriptorProto, entries: dict[str, DescriptorProto], package: str) -> tuple[str, str]:
    """Returns the type of the field when read, and the type that the constructor accepts."""
    composite = field.type == FieldDescriptorProto.TYPE_MESSAGE
    name = _local(field.type_name, package) if composite else _SCALARS[field.type]
    entry = entries.get(name.rpartition(".")[2])
    if composite and entry is not None:
        key, value = entry.field
        composite = value.type == FieldDescriptorProto.TYPE_MESSAGE
        pair = (
            f"{_SCALARS[key.type]}, {_local(value.type_name, package) if composite else _SCALARS[value.type]}"
        )
        return f"{'MessageMap' if composite else 'ScalarMap'}[{pair}]", f"Mapping[{pair}]"
    if _repeated(field):
        container = "RepeatedCompositeFieldContainer" if composite else "RepeatedScalarFieldContainer"
        return f"{container}[{name}]", f"Iterable[{name}]"
    return name, f"{name} | None" if composite or field.proto3_optional else name


def _repeated(field: FieldDescriptorProto) -> bool:
    return field.label == FieldDescriptorProto.LABEL_REPEATED


def _local(type_name: str, package: str) -> str:
    """Shortens a name to that in its own module: `.v1beta1.Mount` is `Mount`."""
    return type_name.removeprefix(f".{package}.")

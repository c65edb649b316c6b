"""Builds message classes, enums and gRPC methods from the descriptor set that `make protos` wrote.

Code that protoc generates refuses some versions of the protobuf runtime. A descriptor set is data that every
version reads, so whatever version is installed will do (`docs/adr/0015`).
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb")

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """A method of a gRPC service: the name on the wire, and what goes there and back."""

    service: str
    """Full name of the service: `v1beta1.DevicePlugin`."""
    name: str
    request: type[Request]
    response: type[Response]

    @property
    def path(self) -> str:
        """The HTTP/2 path of a call."""
        return f"/{self.service}/{self.name}"


class UnaryMethod(Method[Request, Response]):
    """One request, one response."""

    __slots__ = ()


class StreamMethod(Method[Request, Response]):
    """One request, a stream of responses."""

    __slots__ = ()


class Api:
    """What one `.proto` file declares."""

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file

    def message(self, name: str) -> type[Any]:
        return message_factory.GetMessageClass(self._file.message_types_by_name[name])

    def enum(self, name: str) -> Any:
        """An IntEnum. Messages take its members, and give plain numbers back."""
        values = self._file.enum_types_by_name[name].values
        return enum.IntEnum(name, [(value.name, value.number) for value in values])

    def service(self, name: str) -> type[Any]:
        """A class that has the service's methods as attributes."""
        return type(
            name, (), {each.name: _method(each) for each in self._file.services_by_name[name].methods}
        )


def load(proto: str) -> Api:
    """`proto` is the file's path in `protos/`.

    Each file gets a pool of its own: the kubelet calls several of its packages just `v1`, and another library
    in this process may bring its own copy of the same messages.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_files()[proto])
    return Api(pool.FindFileByName(proto))


@functools.cache
def _files() -> dict[str, bytes]:
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
    return {file.name: file.SerializeToString() for file in files}


def _method(described: MethodDescriptor) -> Method[Any, Any]:
    kind: type[Method[Any, Any]] = StreamMethod if described.server_streaming else UnaryMethod
    return kind(
        service=described.containing_service.full_name,
        name=described.name,
        request=message_factory.GetMessageClass(described.input_type),
        response=message_factory.GetMessageClass(described.output_type),
    )

"""Calls and serves gRPC methods with the message types that the `.proto` file declares for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, overload

import grpc
import grpc.aio
from google.protobuf.message import Message

from cotenant.kube.protos.loader import Method, Request, Response, StreamMethod, UnaryMethod

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

Sent_contra = TypeVar("Sent_contra", contravariant=True)
Received_co = TypeVar("Received_co", covariant=True)


class UnaryCall(Protocol[Sent_contra, Received_co]):
    def __call__(self, request: Sent_contra, /, *, timeout: float) -> Awaitable[Received_co]:
        """Raises `grpc.aio.AioRpcError`; `timeout` is in seconds."""


class StreamCall(Protocol[Sent_contra, Received_co]):
    def __call__(self, request: Sent_contra, /) -> AsyncIterator[Received_co]:
        """Iterating raises `grpc.aio.AioRpcError`."""


class Served(NamedTuple):
    """A method together with the function that answers it."""

    method: Method[Any, Any]
    handler: grpc.RpcMethodHandler


@overload
def call(
    channel: grpc.aio.Channel, method: UnaryMethod[Request, Response]
) -> UnaryCall[Request, Response]: ...
@overload
def call(
    channel: grpc.aio.Channel, method: StreamMethod[Request, Response]
) -> StreamCall[Request, Response]: ...
def call(channel: grpc.aio.Channel, method: Method[Any, Any]) -> Any:
    """Makes a function that sends a request over `channel`."""
    kind = channel.unary_stream if isinstance(method, StreamMethod) else channel.unary_unary
    return kind(method.path, request_serializer=_serialize, response_deserializer=method.response.FromString)


@overload
def serve(
    method: UnaryMethod[Request, Response], answer: Callable[[Request, Context], Awaitable[Response]]
) -> Served: ...
@overload
def serve(
    method: StreamMethod[Request, Response], answer: Callable[[Request, Context], AsyncIterator[Response]]
) -> Served: ...
def serve(method: Method[Any, Any], answer: Callable[[Any, Any], Any]) -> Served:
    """Answers calls of `method` by `answer`, a coroutine function, or an async generator if it streams."""
    kind = (
        grpc.unary_stream_rpc_method_handler
        if isinstance(method, StreamMethod)
        else grpc.unary_unary_rpc_method_handler
    )
    return Served(
        method, kind(answer, request_deserializer=method.request.FromString, response_serializer=_serialize)
    )


def service_handler(*served: Served) -> grpc.GenericRpcHandler:
    """Joins methods of one service, for `grpc.aio.Server.add_generic_rpc_handlers`.

    gRPC answers the service's other methods with UNIMPLEMENTED.
    """
    (service,) = {each.method.service for each in served}
    return grpc.method_handlers_generic_handler(service, {each.method.name: each.handler for each in served})


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()

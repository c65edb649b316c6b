"""Listens for gRPC with TLS, with the newest certificate and with bounds on what a client may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

import grpc
import grpc.aio

from cotenant.core.errors import CotenantError
from cotenant.kube.certificates.key_pair import KeyPair

LARGEST_MESSAGE = 64 * 1024
"""Bytes. A ScaledObjectRef is some hundred: two names and the metadata of one trigger."""
MOST_CALLS = 8000
"""Calls at once, streams included. KEDA keeps two streams for each trigger of type external-push, all over
one connection.
"""
GRACE = 2.0
"""Seconds for calls that are being answered when the listener stops."""

_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", MOST_CALLS),
    # A KEDA that restarts opens all its streams at once. gRPC would drop some of more than 1000 that wait.
    ("grpc.server.max_pending_requests", MOST_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MOST_CALLS),
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a share of its connections
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Connections to a client that is gone are found and closed.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


@asynccontextmanager
async def listening(
    address: str, port: int, serving: Callable[[], KeyPair], handler: grpc.GenericRpcHandler
) -> AsyncIterator[None]:
    """Listens until the block ends. `serving` is asked for the certificate at each new connection."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MOST_CALLS)
    server.add_generic_rpc_handlers((handler,))
    try:
        server.add_secure_port(_target(address, port), _credentials(serving))
        await server.start()
    except RuntimeError as error:
        raise CotenantError(f"port {port}: it cannot be listened on: {error}") from None
    try:
        yield
    finally:
        await server.stop(GRACE)


def _credentials(serving: Callable[[], KeyPair]) -> grpc.ServerCredentials:
    """Gives each new connection the newest certificate. gRPC calls `changed` from a thread of its own."""
    last = serving()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal last
        newest = serving()
        if newest == last:
            return None
        last = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(last), changed, require_client_authentication=False
    )


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(((pair.key, pair.certificate),))


def _target(address: str, port: int) -> str:
    if not address:
        return f"[::]:{port}"
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"

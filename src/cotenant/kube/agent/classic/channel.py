"""Opens gRPC channels to the kubelet's sockets."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 16 * 2**20),
)
"""A kubelet that restarts is found again within a second; gRPC's own default is up to two minutes."""


def kubelet_channel(socket: Path) -> grpc.aio.Channel:
    """Connects at the first call, not here."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)

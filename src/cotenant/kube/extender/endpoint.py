"""Publishes the leader's address as the only endpoint of the extender's Service.

The Service has no selector. The server that leads writes its own address, so kube-scheduler and every other
client reach the one server that answers, and the next one a moment after it has taken over.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.resources import ENDPOINT_SLICES
from cotenant.kube.settings import Settings

PORT = "https"
"""The name of the port, in the Service too."""


def endpoint_slice(settings: Settings, address: str) -> dict[str, Any]:
    name = settings.extender.service
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "cotenant",
            },
        },
        "addressType": f"IPv{ip_address(address).version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": PORT, "port": settings.extender.port, "protocol": "TCP"}],
    }


async def publish(client: Client, settings: Settings, address: str) -> None:
    """Applies the EndpointSlice; may be repeated. It takes over the fields of the leader before us."""
    body = endpoint_slice(settings, address)
    await client.apply(
        ENDPOINT_SLICES, body, "cotenant", settings.namespace, force=True, within=settings.leader.duration / 2
    )

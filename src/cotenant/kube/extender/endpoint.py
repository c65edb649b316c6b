"""The way to the leader: the only endpoint of the extender's Service is the server that leads.

The Service has no selector. Whoever leads writes its own address, so kube-scheduler, and whoever else asks,
always reaches the one server that answers, and the next one a moment after it has taken over.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.objects import Generic
from cotenant.kube.api.resources import Resource
from cotenant.kube.settings import Settings

ENDPOINT_SLICES = Resource(Generic, "EndpointSlice", "endpointslices", group="discovery.k8s.io")
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
    """Repeatable. One that is held by another manager is taken: it was the leader before us."""
    body = endpoint_slice(settings, address)
    await client.apply(
        ENDPOINT_SLICES, body, "cotenant", settings.namespace, force=True, within=settings.leader.duration / 2
    )

"""Publishes the leader's address as the only endpoint of the extender's Service.

The Service has no selector. The server that leads writes its own address, so kube-scheduler and every other
client reach the one server that answers, and the next one a moment after it has taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import ENDPOINT_SLICES
from cotenant.kube.settings import Settings

PORT = "https"
"""The name of the port, in the Service too."""
MANAGER = "cotenant"
SLICES = ENDPOINT_SLICES.raw


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


async def publish(
    client: Client, settings: Settings, address: str, must_lead: Callable[[float], None]
) -> bool:
    """Writes the EndpointSlice unless it is right already; returns whether it was written.

    The write is guarded by what was read: one that a former leader sent, and that arrives late, fails. It
    takes over fields that others have written.
    """
    body, within = endpoint_slice(settings, address), settings.leader.duration / 2
    name, namespace = body["metadata"]["name"], settings.namespace
    try:
        found = await client.get(SLICES, name, namespace, within=within)
    except NotFound:
        found = None
    if found is not None and _shows(found, body):
        return False
    must_lead(within)
    if found is not None and found.get("addressType") != body["addressType"]:
        await client.delete(SLICES, name, namespace, guard=_guard(found), within=within)  # it cannot change
        found = None
    if found is None:
        await client.create(SLICES, body, namespace, within=within)
    else:
        await client.apply(SLICES, body, MANAGER, namespace, force=True, guard=_guard(found), within=within)
    return True


def _guard(found: Mapping[str, Any]) -> Guard:
    return Guard(found["metadata"]["uid"], found["metadata"]["resourceVersion"])


def _shows(found: Any, wanted: Any) -> bool:
    """Reports whether an object has all that is wanted. Others may add labels, but no endpoint or port."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_shows(found.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(map(_shows, found, wanted))
    return bool(found == wanted)

"""The way to the leader. The leader writes it when its term begins, and not again."""

from __future__ import annotations

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.resources import LEASES
from cotenant.kube.extender.endpoint import endpoint_slice
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.gathering import SLICES
from cotenant.kube.operating.doctor.repairs.repair import NotRepaired, guard_of


async def endpoint(client: Client, facts: Facts, _finding: Finding) -> str:
    """The slice is read before the Lease: a server that leads since then has written it, and ours fails."""
    settings, leader = facts.installed.settings, facts.leader
    if leader is None:
        raise NotRepaired("no server leads")
    wanted = endpoint_slice(settings, leader.status.pod_ip)
    name = wanted["metadata"]["name"]
    try:
        found = await client.get(SLICES, name, settings.namespace)
    except NotFound:
        found = None
    lease = await client.get(LEASES, settings.leader.lease, settings.namespace)
    if not (lease.spec.holder_identity or "").startswith(f"{leader.metadata.name}_"):
        raise NotRepaired(f"{lease.spec.holder_identity or 'nobody'} leads by now")
    if found is not None and found.get("addressType") != wanted["addressType"]:
        await client.delete(SLICES, name, settings.namespace, guard=guard_of(found))
        found = None  # of the other kind of addresses; it cannot be changed
    if found is None:
        await client.create(SLICES, wanted, settings.namespace)
    else:
        changes = {key: wanted[key] for key in ("endpoints", "ports")}
        await client.merge_patch(SLICES, name, changes, settings.namespace, guard=guard_of(found))
    return f"it leads to {leader.metadata.name} ({leader.status.pod_ip})"

"""Has Kubernetes remove the right replicas: those without a GPU, then loading ones, then idle ones.

ReplicaSets and ReplicationControllers remove pods without a node first, then those that are not ready, then
by the annotation `controller.kubernetes.io/pod-deletion-cost`, the lowest first. So only among ready pods
there is something to say, and only those that should go get a cost. A StatefulSet removes its last replica
always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, NotFound
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS
from cotenant.kube.scaler.replicas import Replicas

COST = "controller.kubernetes.io/pod-deletion-cost"
_OURS = -2_000_000_000
"""Costs from here to a million above are ours: nobody else's is as low."""
_MANY = 1_000_000
_WITHIN = 4.0
_AT_ONCE = 8


def costs(replicas: Replicas, remove: int) -> dict[str, str | None]:
    """Returns, by UID, the costs to write before this many are removed; None takes one of ours off that
    counts no longer. Empty where Kubernetes' own order is right, or all go.
    """
    goes = {each.uid: at for at, each in enumerate(replicas.all[:remove]) if each.ready is not None}
    if remove >= len(replicas.all):
        goes = {}
    changes: dict[str, str | None] = {}
    for each in replicas.all:
        found = each.pod.metadata.annotations.get(COST)
        wanted = str(_OURS + goes[each.uid]) if each.uid in goes else None
        if wanted is None and (found is None or not _is_ours(found)):
            continue
        if found != wanted:
            changes[each.uid] = wanted
    return changes


def _is_ours(cost: str) -> bool:
    try:
        return _OURS <= int(cost) < _OURS + _MANY
    except ValueError:
        return False


async def write_costs(client: Client, replicas: Replicas, changes: Mapping[str, str | None]) -> None:
    """Writes the costs; raises KubeError if one could not be written: then nothing must be removed."""
    by_uid = {each.uid: each.pod.metadata for each in replicas.all}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def write(uid: str, cost: str | None) -> None:
        meta = by_uid[uid]
        async with limit:
            try:
                await client.merge_patch(
                    PODS,
                    meta.name,
                    {"metadata": {"annotations": {COST: cost}}},
                    meta.namespace,
                    guard=Guard(uid),
                    within=_WITHIN,
                )
            except (NotFound, Conflict):
                return  # it is gone already

    await asyncio.gather(*(write(uid, cost) for uid, cost in changes.items()))

"""Describes a pod for the view of a cluster: what it asks of a node, of its GPUs and beside them."""

from __future__ import annotations

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import PodGrant
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.demand import demand_of, is_mirror, readable_grant
from cotenant.kube.pods.owner import owner_of
from cotenant.kube.pods.requests import beside_gpus
from cotenant.observe.view import PodView

_DIALECTS = Dialects()
"""With the defaults: admission has written the native figures of every pod that may have a slot."""
_PINNED = ("daemonset", "node")
"""Kinds of owners whose pods are made for one node; static pods are owned by the node itself."""


def pod_view(pod: Pod) -> PodView:
    meta, requests, owner = pod.metadata, beside_gpus(pod), owner_of(pod)
    created = meta.creation_timestamp
    return PodView(
        meta.uid,
        meta.name,
        meta.namespace,
        requests.cpu,
        requests.memory,
        _demands(pod),
        owner.of(meta.namespace),
        owner.version,
        pinned=owner.kind in _PINNED or is_mirror(pod),
        created=None if created is None else created.timestamp(),
    )


def _demands(pod: Pod) -> tuple[tuple[str, Demand], ...]:
    """Reads what it asked for. If that is not valid any more, its grant shows it."""
    try:
        return tuple((slot.container, slot.demand) for slot in demand_of(pod, _DIALECTS).slots)
    except CotenantError:
        grant = readable_grant(pod)
        return () if grant is None else _granted(grant)


def _granted(grant: PodGrant) -> tuple[tuple[str, Demand], ...]:
    return tuple((slot.container, _as_demand(slot.shares)) for slot in grant.slots)


def _as_demand(shares: tuple[Share, ...]) -> Demand:
    cards = len(shares)
    if any(share.whole for share in shares):
        return Demand(whole=cards)
    return Demand(Memory(bytes=sum(share.memory for share in shares)), cards, compute=shares[0].compute)

"""Chooses the GPUs of a node that a pod gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.ledger import Room
from cotenant.core.loss import NO_REQUESTS, Loss, Outlook, Requests
from cotenant.core.placement import choose
from cotenant.dialects.dialect import SlotDemand
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import order_of

NO_OUTLOOK = Outlook(Loss())
"""For policies that need none."""


def place_pod(
    cluster: ClusterLedger,
    node: str,
    uid: str,
    slots: Sequence[SlotDemand],
    requests: Requests = NO_REQUESTS,
) -> PodGrant | None:
    """Returns the grant it would get on this node; None if there is no room. Nothing is charged.

    A single slot is placed by the pod's own policy; several one by one, where least is left, as `scan` and
    the policy do it, so that all always agree. If `spread` places the first in the way of the last, best fit
    stands.
    """
    if not slots:
        return None
    rooms, closed = rooms_of(cluster, node), closed_to(cluster, node, uid)
    order = sorted(range(len(slots)), key=lambda at: order_of(slots[at].demand))
    wanted = [slots[at].demand for at in order]
    if len(wanted) == 1:
        shares = put_all(rooms, wanted, closed, outlook(cluster, node, wanted[0], requests))
    else:
        shares = put_all(rooms, [best_fit(demand) for demand in wanted], closed)
        if shares is not None and wanted[0].placement == "spread":
            shares = put_all(rooms, wanted, closed) or shares
    if shares is None:
        return None
    granted = dict(zip(order, shares, strict=True))
    return PodGrant(
        uid,
        tuple(
            SlotGrant(slot.container, granted[at], tuple(member.container for member in slot.members[:-1]))
            for at, slot in enumerate(slots)
        ),
    )


def outlook(cluster: ClusterLedger, node: str, demand: Demand, requests: Requests) -> Outlook:
    """Returns what the policy `frag` knows of the node, for a pod with this demand."""
    if demand.placement != "frag":
        return NO_OUTLOOK
    before = cluster.spare(node)
    after = before.less(requests.cpu, requests.memory)
    return Outlook(cluster.learned.loss, before, after, cluster.reserved(demand.models))


def rooms_of(cluster: ClusterLedger, node: str) -> list[Room]:
    """Returns the rooms in the order of the GPUs' indexes, which is that of the matrix."""
    ledger = cluster.ledger(node)
    return [ledger.room_on(gpu.uuid) for gpu in cluster.gpus(node)]


def closed_to(cluster: ClusterLedger, node: str, uid: str, behind: Collection[str] = ()) -> frozenset[str]:
    """Returns GPUs of the node that are held for others; the holds of pods behind it do not count."""
    return frozenset(
        card
        for holder, (where, cards) in cluster.holds().items()
        if where == node and holder != uid and holder not in behind
        for card in cards
    )


def best_fit(demand: Demand) -> Demand:
    return replace(demand, placement="binpack")


def put_all(
    rooms: Sequence[Room],
    demands: Sequence[Demand],
    closed: Collection[str],
    outlook: Outlook = NO_OUTLOOK,
) -> list[tuple[Share, ...]] | None:
    """Places the demands on GPUs one after another. Returns the shares of each; None without room."""
    now, granted = list(rooms), list[tuple[Share, ...]]()
    for demand in demands:
        taken = choose(now, demand, outlook, closed)
        if taken is None:
            return None
        shares = list[Share]()
        for at in taken:
            gpu = now[at].gpu
            share = Share(gpu.uuid, _bytes_on(demand, gpu), demand.compute, whole=demand.memory is None)
            now[at] = now[at].after(share)
            shares.append(share)
        granted.append(tuple(shares))
    return granted


def _bytes_on(demand: Demand, gpu: GPU) -> int:
    """Returns what is granted on this GPU. Memory that cannot be split evenly is rounded down, unlike in
    `Demand.per_card`: the sum over all GPUs must not be more than quotas have counted.
    """
    if demand.memory is None or demand.memory.bytes is None:
        return demand.per_card(gpu.memory)
    return demand.memory.bytes // demand.gpus

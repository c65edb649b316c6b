"""Finds what would make a waiting pod fit: a smaller demand, another pod's end, a GPU back in service."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from cotenant.core.demand import Demand
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.nodes.gpus import gpus_of_node, read_gpus
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import in_order
from cotenant.kube.scheduling.placing import best_fit, closed_to, put_all, rooms_of
from cotenant.kube.scheduling.victims import Candidate, victims

MOST_NODES = 32
"""Nodes on which it is worked out whose end would help: those with most room."""
MOST_TOLD = 3
MOST_NAMED = 6


def openings(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    behind: Collection[str] = (),
) -> tuple[str, ...]:
    """Returns texts that continue "it would fit". `nodes`: where it may go; `behind`: pods whose holds give
    way.
    """
    by_name = {node.metadata.name: node for node in nodes}
    ranked = sorted(by_name, key=lambda name: -sum(room.free for room in rooms_of(cluster, name)))[
        :MOST_NODES
    ]
    return (
        *_ends(cluster, uid, demands, ranked, pods, behind),
        *_given_back(cluster, uid, demands, [by_name[name] for name in ranked], behind),
        *_smaller(cluster, uid, demands, ranked, behind),
    )


def _ends(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    nodes: Sequence[str],
    pods: Sequence[Pod],
    behind: Collection[str],
) -> Iterator[str]:
    """Yields whose end makes the room: terminating pods if they are enough; then any one of several, where
    one is enough; then several together.
    """
    by_uid = {pod.metadata.uid: pod for pod in pods}
    found = []
    for node in nodes:
        candidates = [Candidate(each, 0, 0.0) for each in cluster.pods_on(node) if each in by_uid]
        leaving = [one for one in candidates if _leaves(by_uid[one.uid])]
        going = victims(cluster, node, uid, demands, leaving, behind) if leaving else None
        if going:
            found.append((0, node, " and ", [by_uid[each] for each in going]))
            continue
        alone = [
            one.uid for one in candidates if victims(cluster, node, uid, demands, [one], behind) == (one.uid,)
        ]
        if alone:
            found.append((1, node, " or ", [by_uid[each] for each in alone]))
        elif needed := victims(cluster, node, uid, demands, candidates, behind):
            found.append((len(needed), node, " and ", [by_uid[each] for each in needed]))
    for count, node, word, ending in sorted(found, key=lambda each: each[:2])[:MOST_TOLD]:
        who = sorted(f"{pod.metadata.namespace}/{pod.metadata.name}{_leaves(pod)}" for pod in ending)
        if len(who) > MOST_NAMED:
            who = [*who[:MOST_NAMED], f"{len(who) - MOST_NAMED} more"]
        yield f"when {word.join(who)} {'ends' if count == 1 or len(ending) == 1 else 'end'} on {node}"


def _leaves(pod: Pod) -> str:
    return " (being deleted)" if pod.metadata.deletion_timestamp is not None else ""


def _given_back(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    nodes: Sequence[Node],
    behind: Collection[str],
) -> Iterator[str]:
    """Yields GPUs that take no grant now, on nodes where they would make the difference."""
    for node in nodes:
        name = node.metadata.name
        told = read_gpus(node.metadata.annotations.get(names.GPUS))
        closed = [
            card for card, gpu in zip(told.cards, gpus_of_node(node)[0], strict=True) if not gpu.healthy
        ]
        if not closed:
            continue
        trial = ClusterLedger()
        trial.set_node(
            name,
            [replace(card.gpu(), healthy=True) for card in told.cards],
            {c.uuid: c.outside for c in told.cards if c.outside},
        )
        for pod in cluster.pods_on(name):
            charged = cluster.charged(pod)
            if charged is not None:
                trial.load(name, charged[1])
        if _fits(trial, name, demands, closed_to(cluster, name, uid, behind)):
            for card in closed:
                if card.problem is None:
                    place = f"{name}/{card.index}"
                    yield f"if GPU {card.index} of {name} were not drained: cotenant undrain {place}"
                else:
                    yield f"if GPU {card.index} of {name} were well: {card.problem}"


def _smaller(
    cluster: ClusterLedger, uid: str, demands: Sequence[Demand], nodes: Sequence[str], behind: Collection[str]
) -> Iterator[str]:
    """Yields how much of what it asks for it could get now."""
    if len(demands) != 1 or demands[0].memory is None or demands[0].memory.bytes is None:
        return
    demand, best, where = demands[0], 0, ""
    for node in nodes:
        closed = closed_to(cluster, node, uid, behind)
        free = sorted(
            (
                room.free
                for room in rooms_of(cluster, node)
                if room.gpu.uuid not in closed
                and demand.accepts(room.gpu)
                and room.compute_free >= (demand.compute or 0)
            ),
            reverse=True,
        )
        if len(free) >= demand.count and free[demand.count - 1] > best:
            best, where = free[demand.count - 1], node
    if 0 < best < demand.per_card(0):
        each = f" ({format_bytes(best)} on each of {demand.count} GPUs)" if demand.count > 1 else ""
        yield f"if it asked for at most {format_bytes(best * demand.count)}{each}, on {where}"


def _fits(cluster: ClusterLedger, node: str, demands: Sequence[Demand], closed: Collection[str]) -> bool:
    wanted = [best_fit(demand) for demand in in_order(demands)]
    return put_all(rooms_of(cluster, node), wanted, closed) is not None

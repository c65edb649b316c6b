"""Finds how evictions make room on a node for a waiting pod: the victims, and the GPUs that it then gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.victims import Candidate, Tries, opened_cards, victims


@dataclass(frozen=True, slots=True)
class Opening:
    """Room for a pod once some have terminated."""

    node: str
    cards: tuple[str, ...]
    """The GPUs that it would get."""
    victims: tuple[str, ...]
    """UIDs of the pods to evict; empty if those that terminate anyway are enough."""
    awaited: tuple[str, ...]
    """UIDs of all pods on these GPUs that have to terminate, the victims among them."""
    cost: tuple[object, ...]
    """The least is the best: first by the highest priority among the victims, then by their number, then by
    the sum of their priorities, then by who has run for the shortest time.
    """
    tries: int
    """What was left of the tries when the search on this node began: with as many it finds the same again."""


def opening_on(
    cluster: ClusterLedger,
    node: str,
    uid: str,
    demands: Sequence[Demand],
    candidates: Sequence[Candidate],
    leaving: Collection[str],
    behind: Collection[str],
    tries: Tries | None = None,
) -> Opening | None:
    """Returns None if no eviction would be enough, or none is needed, or no tries are left to find out."""
    tries = tries or Tries()
    began = tries.left
    found = victims(cluster, node, uid, demands, candidates, behind, leaving, tries)
    if found is None:
        return None
    gone = {*found, *leaving}
    cards = opened_cards(cluster, node, uid, demands, gone, behind)
    awaited = tuple(
        each
        for each in cluster.pods_on(node)
        if each in found or (each in leaving and _is_on(cluster, each, cards))
    )
    if not awaited:
        return None
    ended = [each for each in candidates if each.uid in found]
    return Opening(node, cards, found, awaited, (*_cost(ended), node), began)


def _is_on(cluster: ClusterLedger, uid: str, cards: Collection[str]) -> bool:
    charged = cluster.charged(uid)
    return charged is not None and any(
        share.uuid in cards for slot in charged[1].slots for share in slot.shares
    )


def _cost(ended: Sequence[Candidate]) -> tuple[object, ...]:
    priorities = [each.priority for each in ended]
    started = sorted(-each.started for each in ended)
    return max(priorities, default=-(2**62)), len(ended), sum(priorities), started

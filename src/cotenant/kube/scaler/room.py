"""Offers the free GPUs of the cluster to workloads that compete for them, each on the nodes that it may use.

A node that is cordoned, not Ready, tainted or not selected is no room for a workload, however much is free
there: replicas that are asked for because of it would only wait in line. The rule is the one that `explain`
tells people (`kube.pods.eligibility`), applied to the workload's pod template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cotenant.core.demand import Demand
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.api.objects import Node
from cotenant.kube.pods.eligibility import ANYWHERE, Placement, obstacle, takes_pods
from cotenant.kube.scheduling.capacity import Capacity
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

_MOST_MATCHES = 50_000
"""Pairs of a node and a placement that are compared in one round. Whose placement comes after that is offered
nothing, and then gets one replica at a time: authors of many placements do not hold up the others.
"""


class Room:
    """The free GPUs at one moment, for one round. What one workload takes is not offered to the next."""

    def __init__(self, cluster: ClusterLedger, nodes: Iterable[Node]) -> None:
        there = [node for node in nodes if takes_pods(node)]
        rows = cluster.rows([node.metadata.name for node in there])
        known = rows >= 0
        self._nodes = [node for node, is_known in zip(there, known.tolist(), strict=True) if is_known]
        self._capacity = Capacity(cluster, rows[known])
        self._allowed: dict[bytes, list[bool]] = {}
        self._left = _MOST_MATCHES

    def take(
        self,
        demands: Sequence[Demand],
        most: int,
        placement: Placement = ANYWHERE,
        requests: Requests = NO_REQUESTS,
    ) -> int:
        """Takes room for as many pods as fit, at most `most`, and returns how many."""
        return self._capacity.take(demands, most, self._where(placement), requests) if most > 0 else 0

    def _where(self, placement: Placement) -> list[bool]:
        key = msgspec.json.encode(placement)
        if key not in self._allowed:
            if self._left < len(self._nodes):
                return [False] * len(self._nodes)
            self._left -= len(self._nodes)
            self._allowed[key] = _allowed(placement, self._nodes)
        return self._allowed[key]


def _allowed(placement: Placement, nodes: Sequence[Node]) -> list[bool]:
    """Reports for each node whether the placement allows it, once for nodes that are alike."""
    keys, by_name = placement.label_keys, placement.looks_at_names
    known: dict[object, bool] = {}
    found = []
    for node in nodes:
        meta, taints = node.metadata, node.spec.taints
        alike = (meta.name if by_name else "", taints, *map(meta.labels.get, keys))
        may = known.get(alike)
        if may is None:
            may = known[alike] = obstacle(placement, node) is None
        found.append(may)
    return found

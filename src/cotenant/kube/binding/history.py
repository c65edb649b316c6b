"""Learns which demands are typical of this cluster: fragmentation is measured by them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from cotenant.core.demand import Demand
from cotenant.core.placement import typical_of
from cotenant.kube.pods.slots import PodDemand
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

LONGEST = 1000
"""Demands that are remembered: the last that were served."""
MOST_MODELS = 8
LEARN_EVERY = 100
"""Pods between two lessons, each of which takes milliseconds."""


@dataclass
class History:
    """Remembers demands that were served, and sets what is typical of them in the ledger. UUIDs do not
    count, and a long list of models is cut: what is remembered is bounded.
    """

    cluster: ClusterLedger
    _last: deque[Demand] = field(default_factory=lambda: deque(maxlen=LONGEST))
    _new: int = 0

    def add(self, demand: PodDemand) -> None:
        for each in demand.demands:
            self._last.append(replace(each, uuids=(), models=each.models[:MOST_MODELS]))
        self._new += 1
        if self._new >= LEARN_EVERY:
            self.learn()

    def learn(self) -> None:
        self._new = 0
        self.cluster.typical = typical_of(self._last)

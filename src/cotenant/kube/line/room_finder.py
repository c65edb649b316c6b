"""Searches the node where evicting pods makes room for a waiting pod at the least cost.

It decides nothing. The search through a large cluster takes a while, in which other questions are answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.store import Store
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.place import Place
from cotenant.kube.pods.requests import fits_otherwise
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import rows_of
from cotenant.kube.scheduling.matrix import Rows
from cotenant.kube.scheduling.opening import Opening, opening_on
from cotenant.kube.scheduling.scan import has_room
from cotenant.kube.scheduling.tenants import LEAVES, STAYS, Tenants
from cotenant.kube.scheduling.victims import Candidate, Tries

LATE = 30.0
"""Seconds after its grace period in which a terminating pod must have ended; one that has not, may never."""
MOST_NODES = 100
"""Nodes on which victims are searched for one pod."""
AT_ONCE = 100
"""Nodes that are read before others get a turn."""


@dataclass
class RoomFinder:
    cluster: ClusterLedger
    pods: Store[Pod]
    nodes: Store[Node]
    line: LineKeeper
    wall: Callable[[], float] = time.time
    evicted: set[str] = field(default_factory=set)
    """UIDs of pods that were evicted, and are not seen terminating yet."""
    spared: dict[str, float] = field(default_factory=dict)
    """UIDs of pods that are not evicted now, with the time until which."""

    def rank(self, uid: str) -> int:
        """Returns the pod's priority; LEAVES if it terminates anyway, STAYS if it cannot be evicted."""
        pod = self.pods.get(uid)
        if pod is None or not pod.spec.node_name:
            return STAYS  # it is just being bound, or gone
        leaves = pod.metadata.deletion_timestamp
        if leaves is not None:
            return LEAVES if self.wall() < leaves.timestamp() + LATE else STAYS
        if uid in self.evicted:
            return LEAVES
        return STAYS if uid in self.spared else pod.spec.priority

    def is_above_some(self, priority: int) -> bool:
        """Reports whether any charged pod could be evicted for one of this priority."""
        return any(LEAVES < self.rank(uid) < priority for uid in self.cluster.pods)

    async def tenants(self) -> Tenants:
        tenants = Tenants(self.cluster)
        for at, node in enumerate(self.cluster.nodes, start=1):
            tenants.add(node, self.rank)
            if not at % AT_ONCE:
                await asyncio.sleep(0)
        tenants.done()
        return tenants

    def has_room(self, place: Place) -> bool:
        """Reports whether it fits now; what is held for those behind it gives way."""
        return has_room(self.cluster, place.waiting.demands, self._rows(place), self._own(place))

    async def find(self, place: Place, tenants: Tenants) -> Opening | None:
        """Returns the best opening, by the state during the search."""
        waiting, behind, found = place.waiting, self.line.behind(place.pod), list[Opening]()
        rows = tenants.openable(waiting.demands, waiting.priority, self._rows(place), self._own(place))
        tries = Tries()
        for row in rows[:MOST_NODES].tolist():
            opening = self.opening(place, self.cluster.name(row), behind, tries)
            if opening is not None:
                found.append(opening)
            await asyncio.sleep(0)
        return self._best(place.pod, found)

    def opening(self, place: Place, node: str, behind: Collection[str], tries: Tries) -> Opening | None:
        """Returns the opening on this node now, or None."""
        waiting, ranks = place.waiting, {each: self.rank(each) for each in self.cluster.pods_on(node)}
        leaving = [each for each, rank in ranks.items() if rank == LEAVES]
        candidates = [
            Candidate(each, rank, self._started(each))
            for each, rank in ranks.items()
            if LEAVES < rank < waiting.priority
        ]
        return opening_on(
            self.cluster, node, waiting.uid, waiting.demands, candidates, leaving, behind, tries
        )

    def _rows(self, place: Place) -> Rows:
        return rows_of(self.cluster, place.waiting.eligible)

    def _own(self, place: Place) -> tuple[str, ...]:
        """Returns the UIDs of the pods whose holds are open to it."""
        return place.waiting.uid, *self.line.behind(place.pod)

    def _started(self, uid: str) -> float:
        pod = self.pods.get(uid)
        return 0.0 if pod is None else created_at(pod, 0.0)

    def _best(self, pod: Pod, found: Sequence[Opening]) -> Opening | None:
        """Returns the cheapest opening on a node where the pod already fits by the node's sums. On other
        nodes kube-scheduler evicts.
        """
        there: dict[str, list[Pod]] = {opening.node: [] for opening in found}
        for each in self.pods if found else ():
            if each.spec.node_name in there:
                there[each.spec.node_name].append(each)
        for opening in sorted(found, key=lambda opening: opening.cost):
            node = self.nodes.named(opening.node)
            if node is None or node.spec.unschedulable:
                continue
            if fits_otherwise(pod, node, there[opening.node]):
                return opening
        return None

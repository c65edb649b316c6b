"""Finds the fewest pods whose eviction makes the room that a pod needs on a node's GPUs.

kube-scheduler evicts by the sums of a node, which say nothing about single GPUs. Here it gets the exact
victims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger, Room
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import in_order
from cotenant.kube.scheduling.placing import best_fit, closed_to, put_all

_MOST_TRIES = 1000
"""Sets of pods that are tried on a node in search of the smallest; then one without a spare pod has to do."""
_MOST_ON_A_NODE = 8000
"""What that search may cost on one node, in the unit of `Tries`: fewer sets for a pod of many containers."""
_MOST = 200_000
"""About a second, and up to three on a busy machine: kube-scheduler waits for five, the Lease lasts ten."""


@dataclass
class Tries:
    """The work that one answer may cost over all nodes.

    The unit is one demand placed on one GPU: to place a pod of 32 containers with a GPU each costs 32. It is
    counted, not timed: the same state gives the same answer.
    """

    left: int = _MOST

    def sets(self, cost: int) -> int:
        """Returns how many sets of pods may be tried on a node. Half of the work is kept for nodes where a
        set without a spare pod has to do.
        """
        return max(0, min(_MOST_TRIES, min(_MOST_ON_A_NODE, self.left - _MOST // 2) // cost))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that may be evicted for the one that asks."""

    uid: str
    priority: int
    started: float


Group = tuple[Candidate, ...]


def victims(
    cluster: ClusterLedger,
    node: str,
    uid: str,
    demands: Sequence[Demand],
    candidates: Sequence[Candidate],
    behind: Collection[str] = (),
    leaving: Collection[str] = (),
    tries: Tries | None = None,
) -> tuple[str, ...] | None:
    """Returns the victims, none of them unnecessary; () if the pod fits already, None if no eviction is
    enough or no tries are left to find out.

    The highest priority among them is as low as possible, then they are as few as possible, then of the
    lowest priorities, then the youngest. `behind` are the waiting pods whose holds give way to this one;
    `leaving` are pods on the node that terminate anyway: what they hold counts as free. `tries` is reduced by
    the work done; with fewer left, the victims may be more than the fewest.
    """
    tries = tries or Tries()
    if tries.left <= 0:
        return None
    there = _There(cluster, node, closed_to(cluster, node, uid, behind), demands, candidates, leaving)
    tries.left -= there.cost
    if there.fits(()):
        return ()
    for level in sorted({one.priority for one in there.pods}):
        pool = tuple(one for one in there.pods if one.priority <= level)
        tries.left -= there.cost
        if there.fits(pool):
            found = _fewest(there, pool, tries)
            if found is None:
                tries.left -= there.cost * len(pool)
                found = there.without_spare(pool)
            return tuple(one.uid for one in sorted(found, key=_cheapest_first))
    return None


def opened_cards(
    cluster: ClusterLedger,
    node: str,
    uid: str,
    demands: Sequence[Demand],
    gone: Collection[str],
    behind: Collection[str] = (),
) -> tuple[str, ...]:
    """The cards that it would be put on once these have ended; none if it would have no room then."""
    closed = closed_to(cluster, node, uid, behind)
    there = _There(cluster, node, closed, demands, (), gone)
    shares = put_all([there.room(gpu, frozenset()) for gpu in there.gpus], there.wanted, closed)
    return tuple(sorted({share.uuid for each in shares or () for share in each}))


def _cheapest_first(one: Candidate) -> tuple[float, float, str]:
    return one.priority, -one.started, one.uid


def _cost(group: Iterable[Candidate]) -> tuple[object, ...]:
    ordered = sorted(group, key=_cheapest_first)
    return (
        len(ordered),
        sum(one.priority for one in ordered),
        sorted(-one.started for one in ordered),
        [one.uid for one in ordered],
    )


class _There:
    """A node's cards, and what each would have if some of its pods ended."""

    def __init__(
        self,
        cluster: ClusterLedger,
        node: str,
        closed: frozenset[str],
        demands: Sequence[Demand],
        candidates: Sequence[Candidate],
        leaving: Collection[str] = (),
    ) -> None:
        ledger = cluster.ledger(node)
        self.wanted = [best_fit(demand) for demand in in_order(demands)]
        self.cost = 1 if len(self.wanted) == 1 else max(1, sum(demand.count for demand in self.wanted))
        """What `fits` costs, in the unit of `Tries`; a single demand is only compared with each GPU."""
        self.closed = closed
        self.gpus = sorted(ledger.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
        self._outside = {gpu.uuid: ledger.outside(gpu.uuid) for gpu in self.gpus}
        self._charges: dict[str, dict[str, list[Grant]]] = {gpu.uuid: {} for gpu in self.gpus}
        for uid in cluster.pods_on(node):
            charged = cluster.charged(uid) if uid not in leaving else None
            for charge in charged[1].charges if charged else ():
                for share in charge.shares:
                    if share.uuid in self._charges:
                        self._charges[share.uuid].setdefault(uid, []).append(charge)
        self._rooms: dict[tuple[str, frozenset[str]], Room] = {}
        useful = {uid for gpu in self.gpus if self._could_do(gpu) for uid in self._charges[gpu.uuid]}
        self.pods = sorted((one for one in candidates if one.uid in useful), key=_cheapest_first)

    def _could_do(self, gpu: GPU) -> bool:
        """Whether ending pods on this card can help at all."""
        return gpu.healthy and gpu.uuid not in self.closed and any(each.accepts(gpu) for each in self.wanted)

    def on(self, gpu: GPU, pool: Sequence[Candidate]) -> Group:
        """Those of the pool that are on the card, the largest first: they are the likeliest to be enough."""
        here = (one for one in pool if one.uid in self._charges[gpu.uuid])
        return tuple(sorted(here, key=lambda one: -sum(share.memory for share in self._shares(gpu, one))))

    def _shares(self, gpu: GPU, one: Candidate) -> list[Share]:
        charges = self._charges[gpu.uuid][one.uid]
        return [share for charge in charges for share in charge.shares if share.uuid == gpu.uuid]

    def room(self, gpu: GPU, gone: frozenset[str]) -> Room:
        charges = self._charges[gpu.uuid]
        key = gpu.uuid, gone.intersection(charges)
        room = self._rooms.get(key)
        if room is None:
            left = [charge for uid, all_ in charges.items() if uid not in gone for charge in all_]
            room = Ledger((gpu,), self._outside, left).room_on(gpu.uuid)
            self._rooms[key] = room
        return room

    def fits(self, group: Iterable[Candidate]) -> bool:
        """Whether the pod has room once these have ended."""
        gone = frozenset(one.uid for one in group)
        rooms = [self.room(gpu, gone) for gpu in self.gpus]
        if len(self.wanted) == 1:
            demand = self.wanted[0]
            fit = (room.fits(demand) and room.gpu.uuid not in self.closed for room in rooms)
            return sum(fit) >= demand.count
        return put_all(rooms, self.wanted, self.closed) is not None

    def least(self, gpu: GPU, group: Group) -> int:
        """How many of those on the card must end at least before one part of the only demand fits there."""
        demand, room = self.wanted[0], self.room(gpu, frozenset())
        if demand.memory is None:
            return room.grants and max(1, len(group))
        shares = [self._shares(gpu, one) for one in group]
        return max(
            until(
                demand.per_card(gpu.memory) - (gpu.memory - room.outside - room.granted),
                [sum(share.memory for share in each) for each in shares],
            ),
            until(
                (demand.compute or 0) - room.compute_free,
                [sum(100 if share.whole else share.compute or 0 for share in each) for each in shares],
            ),
        )

    def without_spare(self, pool: Sequence[Candidate]) -> Group:
        """Drops victims that are not needed, the most important first."""
        kept = list(pool)
        for one in sorted(pool, key=_cheapest_first, reverse=True):
            fewer = [other for other in kept if other is not one]
            if self.fits(fewer):
                kept = fewer
        return tuple(kept)


def until(missing: int, sizes: Sequence[int]) -> int:
    """How many of these, the largest first, make up for what is missing."""
    if missing <= 0:
        return 0
    sums = list(accumulate(sorted(sizes, reverse=True)))
    return next((count for count, total in enumerate(sums, 1) if total >= missing), len(sizes) + 1)


def _fewest(there: _There, pool: Group, tries: Tries) -> Group | None:
    """The smallest set, by trying them in the order of their size; None if there are too many to try."""
    groups = _groups(there, pool)
    left = tries.sets(there.cost)
    for size in range(1, len(pool) + 1):
        found: Group | None = None
        for group, least in groups:
            if not least <= size <= len(group):
                continue
            for some in combinations(group, size):
                if not left:
                    return found
                left -= 1
                tries.left -= there.cost
                if (found is None or _cost(some) < _cost(found)) and there.fits(some):
                    found = some
        if found is not None:
            return found
    return None


def _groups(there: _There, pool: Group) -> list[tuple[Group, int]]:
    """Within which sets to look, and how many of each it takes at least; card by card if one will do."""
    if len(there.wanted) > 1 or there.wanted[0].count > 1:
        return [(pool, 1)]
    groups = [(gpu, there.on(gpu, pool)) for gpu in there.gpus]
    return [(group, max(1, there.least(gpu, group))) for gpu, group in groups if group]

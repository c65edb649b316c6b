"""Describes the room that moves are to open, and bounds from below how many pods have to leave for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.ledger import room_of
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.scheduling.demand_mask import in_order
from cotenant.kube.scheduling.eligible import Eligible, rows_of
from cotenant.kube.scheduling.moving import Cards, Movable, Trial
from cotenant.kube.scheduling.node_sums import Amounts
from cotenant.kube.scheduling.placing import best_fit, closed_to, put_all
from cotenant.kube.scheduling.victims import Candidate, opened_cards, until, victims

_LOWEST = -(2**62)
MOST_SETS = 200
"""Sets of GPUs of one node that are considered for a demand for several."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pod for which room is to be opened, or one that somebody imagines."""

    demands: tuple[Demand, ...]
    uid: str = ""
    requests: Requests = NO_REQUESTS
    takes: Mapping[str, int] = field(default_factory=dict)
    """What it takes of its node, by resource."""
    eligible: Eligible = None


@dataclass(frozen=True, slots=True)
class Hole:
    """GPUs of one node that could be opened."""

    node: str
    cards: Cards


_Shares = Sequence[tuple[str, Share]]
"""What is charged on one GPU, with the UIDs of the pods."""


class Holes:
    """Judges holes by the present state of a trial. The pods `movable` may leave, others stay."""

    def __init__(self, trial: Trial, wanted: Wanted, movable: Mapping[str, Movable]) -> None:
        self._trial, self._movable = trial, movable
        self.wanted = wanted
        self._demands = [best_fit(demand) for demand in in_order(wanted.demands)]
        self.count = self._demands[0].count
        """How many GPUs it needs, if it has a single demand."""
        self.complete = True
        """Whether every hole was considered."""

    def all(self) -> Iterator[tuple[int, int, Hole]]:
        """Yields the holes that could be opened if enough pods left, node by node: how many at least, the
        highest priority of those that may leave, and the hole.
        """
        cluster, wanted = self._trial.cluster, self.wanted
        for row in rows_of(cluster, wanted.eligible).tolist():
            node = cluster.name(row)
            beside = self._until_enough(node, wanted.takes)
            if beside is None:
                continue
            priorities = self._priorities(node)
            for hole, least in self._several(node) if len(self._demands) > 1 else self._single(node):
                highest = max(priorities.get(card, _LOWEST) for card in hole.cards)
                yield max(beside, least), highest, hole

    def _single(self, node: str) -> Iterator[tuple[Hole, int]]:
        """Yields the sets of GPUs of a node that would do for the only demand."""
        closed = closed_to(self._trial.cluster, node, self.wanted.uid)
        good = sorted(self.least_on(node, self._demands[0], closed))
        counts, sets = (
            {uuid: least for least, uuid in good},
            combinations([uuid for _, uuid in good], self.count),
        )
        for cards in islice(sets, MOST_SETS):
            yield Hole(node, frozenset(cards)), self._sum(node, cards, [counts[card] for card in cards])
        self.complete &= next(sets, None) is None

    def _priorities(self, node: str) -> dict[str, int]:
        """Returns by GPU the highest priority of the pods that may leave it."""
        return {
            card: max(
                (self._movable[uid].priority for uid, _ in shares if uid in self._movable), default=_LOWEST
            )
            for card, shares in self._trial.shares(node).items()
        }

    def _several(self, node: str) -> Iterator[tuple[Hole, int]]:
        """Yields at most one hole for a pod with several slots, which may or may not share GPUs."""
        self.complete = False
        cluster, wanted = self._trial.cluster, self.wanted
        here = [Candidate(uid, 0, 0.0) for uid in cluster.pods_on(node) if uid in self._movable]
        gone = victims(cluster, node, wanted.uid, wanted.demands, here)
        if gone is not None:
            cards = opened_cards(cluster, node, wanted.uid, wanted.demands, gone)
            if cards:
                yield Hole(node, frozenset(cards)), min(1, len(gone))

    def missing(self, hole: Hole) -> int | None:
        """Returns how many pods have to leave at least; 0 if the pod fits, None if it never will."""
        beside = self._until_enough(hole.node, self.wanted.takes)
        if beside is None:
            return None
        shares = self._trial.shares(hole.node)
        gpus = [gpu for gpu in self._trial.reported(hole.node) if gpu.uuid in hole.cards]
        if len(self._demands) > 1:
            rooms = [
                room_of(gpu, [share for _, share in shares.get(gpu.uuid, ())], self._outside(hole.node, gpu))
                for gpu in gpus
            ]
            return max(beside, 0 if put_all(rooms, self._demands, ()) is not None else 1)
        counts = list[int]()
        for gpu in gpus:
            least = self._least(hole.node, gpu, shares.get(gpu.uuid, ()), self._demands[0])
            if least is None:
                return None
            counts.append(least)
        return max(beside, self._sum(hole.node, hole.cards, counts))

    def _sum(self, node: str, cards: Collection[str], counts: Sequence[int]) -> int:
        """Adds up how many have to leave each of the GPUs; if a pod is on several of them, that it is the
        same one is not known, and the largest number counts.
        """
        if len(counts) == 1:
            return counts[0]
        shares = self._trial.shares(node)
        there = [{uid for uid, _ in shares.get(card, ())} for card in cards]
        spans = sum(map(len, there)) > len(set[str]().union(*there))
        return max(counts) if spans else sum(counts)

    @property
    def all_leave(self) -> bool:
        """Whether a hole opens only if every pod on its GPUs leaves."""
        return all(demand.memory is None for demand in self._demands)

    def on(self, node: str, cards: Collection[str]) -> list[Movable]:
        """Returns the pods on these GPUs that may leave, those that hold most first, then the cheapest."""
        held: dict[str, int] = {}
        for card, shares in self._trial.shares(node).items():
            for uid, share in shares if card in cards else ():
                if uid in self._movable:
                    held[uid] = held.get(uid, 0) + share.memory
        pods = [self._movable[uid] for uid in held]
        return sorted(pods, key=lambda pod: (-held[pod.uid], *cheapest_first(pod)))

    def least_on(self, node: str, demand: Demand, closed: Collection[str]) -> list[tuple[int, str]]:
        """Returns for each GPU of a node, except the closed ones, how many pods have to leave before one part
        of the demand fits; without those where it never will.
        """
        shares = self._trial.shares(node)
        counts = (
            (self._least(node, gpu, shares.get(gpu.uuid, ()), demand), gpu.uuid)
            for gpu in self._trial.reported(node)
            if gpu.uuid not in closed
        )
        return [(count, uuid) for count, uuid in counts if count is not None]

    def _least(self, node: str, gpu: GPU, shares: _Shares, demand: Demand) -> int | None:
        """Returns how many pods have to leave a GPU; None if it would not do even then."""
        if not gpu.healthy or not demand.accepts(gpu):
            return None
        outside = self._outside(node, gpu)
        if shares and room_of(gpu, [share for _, share in shares], outside).fits(demand):
            return 0
        stays = [share for uid, share in shares if uid not in self._movable]
        if not room_of(gpu, stays, outside).fits(demand):
            return None
        leaving: dict[str, list[Share]] = {}
        for uid, share in shares:
            if uid in self._movable:
                leaving.setdefault(uid, []).append(share)
        if demand.memory is None:
            return len(leaving)
        granted = sum(share.memory for _, share in shares)
        memory = demand.per_card(gpu.memory) - (gpu.memory - outside - granted)
        compute = sum(_compute(share) for _, share in shares) + (demand.compute or 0) - 100
        return max(
            until(memory, [sum(share.memory for share in each) for each in leaving.values()]),
            until(compute, [sum(map(_compute, each)) for each in leaving.values()]),
        )

    def beside_of(self, pod: Movable, node: str) -> int | None:
        """Returns how many pods have to leave a node before it has enough beside its GPUs for this one."""
        return self._until_enough(node, pod.takes)

    def _until_enough(self, node: str, takes: Amounts) -> int | None:
        missing = self._trial.sums.missing(node, takes)
        if not missing:
            return 0
        here = [self._movable[uid] for uid in self._trial.cluster.pods_on(node) if uid in self._movable]
        most = 0
        for name, short in missing.items():
            amounts = [pod.takes.get(name, 0) for pod in here]
            if sum(amounts) < short:
                return None
            most = max(most, until(short, amounts))
        return most

    def _outside(self, node: str, gpu: GPU) -> int:
        return self._trial.cluster.ledger(node).outside(gpu.uuid)


def cheapest_first(pod: Movable) -> tuple[int, float, str]:
    """Orders pods: the lowest priority first, then the youngest."""
    return pod.priority, -pod.started, pod.uid


def _compute(share: Share) -> int:
    return 100 if share.whole else share.compute or 0

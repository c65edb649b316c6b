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
from cotenant.kube.scheduling.moving import Cards, Movable, Trial, shares_of
from cotenant.kube.scheduling.node_sums import Amounts
from cotenant.kube.scheduling.placing import best_fit, closed_to, put_all
from cotenant.kube.scheduling.victims import Candidate, opened_cards, until, victims

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
    behind: Collection[str] = ()
    """The pods in line whose holds give way to it."""


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
        self.complete = True
        """Whether every hole was considered."""

    def all(self) -> Iterator[Hole]:
        """Yields the holes that could be opened if enough pods left: node by node."""
        cluster, wanted = self._trial.cluster, self.wanted
        for row in rows_of(cluster, wanted.eligible).tolist():
            node = cluster.name(row)
            if len(self._demands) > 1:
                self.complete = False
                yield from self._by_victims(node)
                continue
            closed = closed_to(cluster, node, wanted.uid, wanted.behind)
            good = sorted(self.least_on(node, self._demands[0], closed))
            sets = combinations([uuid for _, uuid in good], self._demands[0].count)
            yield from (Hole(node, frozenset(each)) for each in islice(sets, MOST_SETS))
            self.complete &= next(sets, None) is None

    def _by_victims(self, node: str) -> Iterator[Hole]:
        """Yields one hole for a pod with several slots, which may or may not share GPUs."""
        cluster, wanted = self._trial.cluster, self.wanted
        here = [Candidate(uid, 0, 0.0) for uid in cluster.pods_on(node) if uid in self._movable]
        gone = victims(cluster, node, wanted.uid, wanted.demands, here, wanted.behind)
        if gone is not None:
            cards = opened_cards(cluster, node, wanted.uid, wanted.demands, gone, wanted.behind)
            if cards:
                yield Hole(node, frozenset(cards))

    def missing(self, hole: Hole) -> int | None:
        """Returns how many pods have to leave at least; 0 if the pod fits, None if it never will."""
        beside = self._beside(hole.node)
        if beside is None:
            return None
        shares = self._shares(hole.node)
        if len(self._demands) > 1:
            rooms = [
                room_of(gpu, [share for _, share in shares.get(gpu.uuid, ())], self._outside(hole.node, gpu))
                for gpu in self._trial.reported(hole.node)
                if gpu.uuid in hole.cards
            ]
            return max(beside, 0 if put_all(rooms, self._demands, ()) is not None else 1)
        counts = list[int]()
        for gpu in self._trial.reported(hole.node):
            if gpu.uuid in hole.cards:
                least = self._least(hole.node, gpu, shares.get(gpu.uuid, ()), self._demands[0])
                if least is None:
                    return None
                counts.append(least)
        there = [{uid for uid, _ in shares.get(card, ())} for card in hole.cards]
        spans = sum(map(len, there)) > len(set[str]().union(*there))
        return max(beside, max(counts) if spans else sum(counts))

    @property
    def all_leave(self) -> bool:
        """Whether a hole opens only if every pod on its GPUs leaves."""
        return all(demand.memory is None for demand in self._demands)

    def on(self, node: str, cards: Collection[str]) -> list[Movable]:
        """Returns the pods on these GPUs that may leave, those that hold most first, then the cheapest."""
        held: dict[str, int] = {}
        for card, shares in self._shares(node).items():
            for uid, share in shares if card in cards else ():
                if uid in self._movable:
                    held[uid] = held.get(uid, 0) + share.memory
        pods = [self._movable[uid] for uid in held]
        return sorted(pods, key=lambda pod: (-held[pod.uid], *cheapest_first(pod)))

    def least_on(self, node: str, demand: Demand, closed: Collection[str]) -> list[tuple[int, str]]:
        """Returns for each GPU of a node, except the closed ones, how many pods have to leave before one part
        of the demand fits; without those where it never will.
        """
        shares = self._shares(node)
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

    def _beside(self, node: str) -> int | None:
        return self._until_enough(node, self.wanted.takes)

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

    def _shares(self, node: str) -> dict[str, list[tuple[str, Share]]]:
        """Returns by GPU what is charged on a node, with the UIDs of the pods."""
        cluster, by_card = self._trial.cluster, dict[str, list[tuple[str, Share]]]()
        for uid in cluster.pods_on(node):
            charged = cluster.charged(uid)
            for share in shares_of(charged[1]) if charged is not None else ():
                by_card.setdefault(share.uuid, []).append((uid, share))
        return by_card


def cheapest_first(pod: Movable) -> tuple[int, float, str]:
    """Orders pods: the lowest priority first, then the youngest."""
    return pod.priority, -pod.started, pod.uid


def _compute(share: Share) -> int:
    return 100 if share.whole else share.compute or 0

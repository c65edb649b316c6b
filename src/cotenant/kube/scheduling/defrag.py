"""Finds the fewest evictions that open room on GPUs for a pod, every evicted pod placed anew by the policy.

First plans are searched in the order of their length, with pods on the GPUs that are to be opened and with
pods whose eviction makes a place for one of those. That finds a plan quickly in a large cluster. Then, as far
as the work allows, every shorter sequence of evictions is tried: if none does, the plan is known to have the
fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from cotenant.kube.scheduling.eligible import rows_of
from cotenant.kube.scheduling.hole import Hole, Holes, Wanted, cheapest_first
from cotenant.kube.scheduling.matrix import Rows
from cotenant.kube.scheduling.moving import Movable, Move, Trial, cards_of, shares_of
from cotenant.kube.scheduling.scan import Verdict, scan

MOST_MOVES = 16
"""Evictions in one plan, unless the caller says another number."""
WORK = 1_500_000
"""What a search may cost, in the unit of one node looked at for one eviction: some seconds. It is counted,
not timed: the same state gives the same plan.
"""
_A_MOVE = 400
"""What a move costs in that unit, however few nodes there are."""
_MOST_HELPERS = 64
"""Pods that are tried to make a place for one that has none."""
_MOST_ON_A_HOLE = 256
"""Moves that are tried for one hole, in the first search, before the next hole has its turn."""


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """Evictions, in this order, that open these GPUs."""

    hole: Hole
    moves: tuple[Move, ...]
    """Empty if the room is there already."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search has found."""

    plan: DefragPlan | None
    fewest: bool
    """Whether no plan has fewer moves; without a plan, whether there is none."""


Progress = Callable[[int, int], object]
"""Is told how many moves a plan would have that is searched now, and how many holes there are."""


def defragment(
    trial: Trial,
    wanted: Wanted,
    pods: Sequence[Movable],
    most: int = MOST_MOVES,
    work: int = WORK,
    progress: Progress | None = None,
) -> Search:
    """Searches a plan with at most this many moves. The ledger is as before when it returns."""
    return _Searching(trial, wanted, pods, work, progress).run(most)


def replay(
    trial: Trial, wanted: Wanted, pods: Sequence[Movable], hole: Hole, order: Sequence[str]
) -> tuple[list[Move], bool]:
    """Tries the evictions of a plan (UIDs, in this order) on the ledger as it is now. Returns the moves, as
    far as they are possible, and whether the room is open after all of them. The ledger is as before.
    """
    movable, moves = {pod.uid: pod for pod in pods}, list[Move]()
    trial.close(hole.node, hole.cards)
    try:
        for uid in order:
            pod = movable.pop(uid, None)
            move = trial.move(pod, hole.node, hole.cards) if pod is not None else None
            if move is None:
                return moves, False
            moves.append(move)
        return moves, Holes(trial, wanted, movable).missing(hole) == 0
    finally:
        for move in reversed(moves):
            trial.undo(move)
        trial.close(hole.node, ())


_Kind = tuple[object, ...]


class _Searching:
    def __init__(
        self, trial: Trial, wanted: Wanted, pods: Sequence[Movable], work: int, progress: Progress | None
    ) -> None:
        self._trial, self._progress = trial, progress
        self._movable = {pod.uid: pod for pod in pods}
        self._holes = Holes(trial, wanted, self._movable)
        self._half = work // 2 // (_A_MOVE + trial.cluster.matrix.rows)
        """How many moves each of the two searches may try."""
        self._until = 0
        """How many moves the trial may have tried when the search for this hole ends."""
        self._everywhere = False
        """Whether every movable pod is tried, not only those that help for a reason that we know."""
        self._length = 0
        """How many moves a plan may have that is searched now."""
        self._cheapest = sorted(pods, key=cheapest_first)
        self._could: dict[str, bool] = {}
        self._places: dict[_Kind, bool] = {}
        """By kind of pod, whether one fits anywhere before anything has moved."""
        self._nearly: dict[_Kind, list[tuple[int, str, str]]] = {}
        """By kind of pod, where it would fit if a few left: how many, the node and the GPU."""

    def run(self, most: int) -> Search:
        found_holes = list[tuple[int, int, Hole]]()
        for each in self._holes.all():
            if each[0] == 0:
                return Search(DefragPlan(each[2], ()), fewest=True)
            found_holes.append(each)
        if not found_holes or not any(map(self._could_move, self._movable.values())):
            return Search(None, fewest=self._holes.complete)
        holes = [
            (missing, hole)
            for missing, _, hole in sorted(
                found_holes, key=lambda each: (*each[:2], each[2].node, sorted(each[2].cards))
            )
        ]
        shortest, found = holes[0][0], None
        end = self._trial.moves + self._half
        for length in range(shortest, most + 1):
            found = self._of_length(length, holes, end, _MOST_ON_A_HOLE)
            if found is not None or self._trial.moves >= end:
                break
        longest = len(found.moves) - 1 if found is not None else most
        self._everywhere, end = True, self._trial.moves + self._half
        for length in range(shortest, longest + 1):
            shorter = self._of_length(length, holes, end, self._half)
            if shorter is not None:
                return Search(shorter, fewest=self._holes.complete)
            if self._trial.moves >= end:
                return Search(found, fewest=False)
        return Search(found, fewest=self._holes.complete)

    def _of_length(
        self, length: int, holes: Sequence[tuple[int, Hole]], end: int, each: int
    ) -> DefragPlan | None:
        """Returns a plan with at most this many moves. Holes come first that so many pods have to leave: they
        take least to try.
        """
        trial, self._length = self._trial, length
        if self._progress is not None:
            self._progress(length, len(holes))
        possible = [(missing < length, hole) for missing, hole in holes if missing <= length]
        for _, hole in sorted(possible, key=lambda one: one[0]):
            if trial.moves >= end:
                break
            self._until = min(end, trial.moves + each)
            if not self._is_hopeless(hole, length):
                trial.close(hole.node, hole.cards)
                try:
                    moves = self._moves(hole, length)
                finally:
                    trial.close(hole.node, ())
                if moves is not None:
                    return DefragPlan(hole, tuple(moves))
        return None

    def _is_hopeless(self, hole: Hole, length: int) -> bool:
        """Reports, without a trial, whether one has to leave that has no place in the whole cluster."""
        pods = self._holes.on(hole.node, hole.cards)
        return self._is_tight(hole, pods, length) and not all(map(self._could_move, pods))

    def _is_tight(self, hole: Hole, pods: Sequence[Movable], left: int) -> bool:
        """Reports whether exactly these have to leave, and give back nothing but the hole: then moves only
        make less room elsewhere.
        """
        only = all(self._left(pod) <= hole.cards for pod in pods)
        return self._holes.all_leave and len(pods) == left and only

    def _left(self, pod: Movable) -> frozenset[str]:
        charged = self._trial.cluster.charged(pod.uid)
        return cards_of(charged[1]) if charged is not None else frozenset()

    def _moves(self, hole: Hole, left: int) -> list[Move] | None:
        missing = self._holes.missing(hole)
        if missing == 0:
            return []
        if missing is None or missing > left:
            return None
        there = self._holes.on(hole.node, hole.cards)
        tight = self._is_tight(hole, there, left)
        tried, stuck = set[_Kind](), list[Movable]()
        for pod in self._candidates(hole, there, left - missing, stuck):
            if self._trial.moves >= self._until:
                return None
            kind = self._kind(pod)
            if kind in tried:
                continue
            tried.add(kind)
            if left == self._length and not self._could_move(pod):
                stuck.append(pod)
                continue
            move = self._trial.move(pod, hole.node, hole.cards)
            if move is None:
                if self._has_no_place(pod, hole):
                    if tight:
                        return None
                    stuck.append(pod)
                continue
            del self._movable[pod.uid]
            try:
                rest = self._moves(hole, left - 1)
            finally:
                self._movable[pod.uid] = pod
                self._trial.undo(move)
            if rest is not None:
                return [move, *rest]
        return None

    def _candidates(
        self, hole: Hole, there: Sequence[Movable], spare: int, stuck: Sequence[Movable]
    ) -> Iterator[Movable]:
        """Yields the pods that may be evicted next: those on the GPUs of the hole, then others of its node,
        whose CPU or memory may be needed; then, if the plan may be longer than what has to leave, those that
        make a place for one that has none, or all.
        """
        yield from there
        if self._holes.wanted.takes:
            here = (self._movable.get(uid) for uid in self._trial.cluster.pods_on(hole.node))
            yield from sorted((pod for pod in here if pod is not None), key=cheapest_first)
        if spare and self._everywhere:
            yield from (pod for pod in self._cheapest if pod.uid in self._movable)
        elif spare:
            helpers = chain.from_iterable(self._helpers(pod, hole, spare) for pod in list(stuck))
            yield from islice(helpers, _MOST_HELPERS)

    def _helpers(self, stuck: Movable, hole: Hole, most: int) -> Iterator[Movable]:
        """Yields pods whose eviction, with at most `most` in all, makes a place for this one: first from GPUs
        that fewest have to leave.
        """
        kind = self._asks(stuck)
        if kind not in self._nearly:
            self._nearly[kind] = sorted(self._nearly_fits(stuck))
        for count, node, card in self._nearly[kind]:
            if count > most:
                break
            if node != hole.node or card not in hole.cards:
                yield from self._holes.on(node, (card,))

    def _nearly_fits(self, pod: Movable) -> Iterator[tuple[int, str, str]]:
        """Yields the GPUs on which the pod's largest part fits if a few pods leave."""
        cluster = self._trial.cluster
        largest = max(pod.demands, key=lambda demand: demand.per_card(0))
        for row in rows_of(cluster, pod.eligible).tolist():
            node = cluster.name(row)
            beside = self._holes.beside_of(pod, node)
            for count, card in self._holes.least_on(node, largest, ()) if beside is not None else ():
                if max(count, beside or 0):
                    yield max(count, beside or 0), node, card

    def _could_move(self, pod: Movable) -> bool:
        """Reports whether a pod like this would fit anywhere before anything has moved; on its own node CPU
        and memory do not count, since pods leave it.
        """
        known = self._could.get(pod.uid)
        if known is None:
            kind = self._asks(pod)
            if kind not in self._places:
                self._places[kind] = self._fits_any(pod, self._trial.rows(pod))
            known = self._places[kind]
            charged = self._trial.cluster.charged(pod.uid)
            if not known and charged is not None:
                known = self._fits_any(pod, self._trial.cluster.rows([charged[0]]))
            self._could[pod.uid] = known
        return known

    def _has_no_place(self, pod: Movable, hole: Hole) -> bool:
        """Reports whether no GPU outside of the hole has room for the pod, wherever it may go; on the hole's
        node CPU and memory do not count, since others may leave it.
        """
        rows = np.union1d(self._trial.rows(pod), self._trial.cluster.rows([hole.node]))
        return not self._fits_any(pod, rows.astype(np.int32))

    def _fits_any(self, pod: Movable, rows: Rows) -> bool:
        return bool((scan(self._trial.cluster, pod.uid, pod.demands, rows) == Verdict.FITS).any())

    def _asks(self, pod: Movable) -> _Kind:
        return pod.demands, pod.requests, tuple(sorted(pod.takes.items())), id(pod.eligible)

    def _kind(self, pod: Movable) -> _Kind:
        """Pods of one kind are alike to every search: where they are, what they hold and ask for."""
        charged = self._trial.cluster.charged(pod.uid)
        shares = shares_of(charged[1]) if charged is not None else ()
        held = tuple((share.uuid, share.memory, share.compute, share.whole) for share in shares)
        return held, *self._asks(pod)

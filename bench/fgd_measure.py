"""Measures GPU memory fragmentation: free memory that the demands likely to come cannot use.

The measure of "Beware of Fragmentation" (FGD, USENIX ATC '23): for each typical demand, free memory
counts as lost where that demand cannot use it. Pure: it serves one machine and a cluster's nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import wraps
from itertools import accumulate
from typing import Concatenate, ParamSpec, TypeVar

from cotenant.core.demand import Demand, Memory
from cotenant.core.ledger import Room

P = ParamSpec("P")
T = TypeVar("T")
Typical = tuple[tuple[float, Demand], ...]
"""The demands that are likely to come, with their weights; none of them names UUIDs. Whole numbers as
weights keep ties exact.
"""

DEFAULT_TYPICAL: Typical = (
    (2, Demand(Memory(percent=Fraction(25, 2)))),
    (3, Demand(Memory(percent=Fraction(25)))),
    (3, Demand(Memory(percent=Fraction(50)))),
    (4, Demand(whole=1)),
)
"""Used until there is a history: shared and whole GPUs about equally often, as in published traces.
Percentages, so that it fits GPUs of any size."""


def stranded(rooms: Sequence[Room], demand: Demand) -> int:
    """Returns the free bytes of one machine that this demand cannot use: F_n(m) of the paper."""
    unfit = [room.free for room in rooms if not room.fits(demand)]
    return _lost(sum(room.free for room in rooms), sum(unfit), len(rooms) - len(unfit), demand)


def _lost(free: int, unfit: int, cards: int, demand: Demand) -> int:
    """Returns how many of the free bytes are lost: all, if too few GPUs fit the demand, else `unfit`."""
    return free if cards < demand.count else unfit


def fragmentation(rooms: Sequence[Room], typical: Typical) -> float:
    """Returns the expected free bytes of one machine that the next demand cannot use: F_n, not normalised."""
    return sum(weight * stranded(rooms, kind) for weight, kind in typical)


def coarse(increase: float, typical: Typical, card_bytes: int) -> int:
    """Rounds an increase of fragmentation to tenths of a GPU, below which best fit decides.

    The measure is an expectation over a rough guess of what will come, so a small difference says nothing,
    while a tight fit always helps: on a published trace this fills a cluster by one percent more.
    """
    unit = sum(weight for weight, _ in typical) * card_bytes
    return int(10 * increase // unit) if unit else 0


def typical_of(demands: Iterable[Demand], cover: Fraction = Fraction(95, 100)) -> Typical:
    """Picks the most frequent past demands that make up this part of the history, or the default."""
    kinds = Counter[Demand]()
    for demand, count in Counter(demands).items():
        kinds[replace(demand, placement="frag", uuids=())] += count
    enough, typical = cover * kinds.total(), list[tuple[float, Demand]]()
    for demand, count in sorted(kinds.items(), key=lambda kind: (-kind[1], str(kind[0]))):
        if sum(weight for weight, _ in typical) >= enough:
            break
        typical.append((count, demand))
    return tuple(typical) or DEFAULT_TYPICAL


@dataclass(frozen=True, slots=True)
class Plain:
    """Demands for memory of any one GPU, where only size decides whether they fit.

    To them memory is lost GPU by GPU, so the loss to all of them is one lookup.
    """

    needs: tuple[int, ...]
    """Bytes, in ascending order."""
    sums: tuple[float, ...]
    """Prefix sums of the weights: of the first 0, 1, 2 ... demands."""

    def lost(self, free: int) -> float:
        """Returns the free memory of one GPU times the weights of the demands that do not fit into it."""
        return free * (self.sums[-1] - self.sums[bisect_right(self.needs, free)])


def remembers_the_last(work: Callable[Concatenate[Typical, P], T]) -> Callable[Concatenate[Typical, P], T]:
    """Caches the last result: what is typical changes seldom and is needed at every placement."""
    last: tuple[Typical, object, T] | None = None

    @wraps(work)
    def answer(typical: Typical, /, *more: P.args, **named: P.kwargs) -> T:
        nonlocal last
        if last is None or last[0] is not typical or last[1] != (more, named):
            last = typical, (more, named), work(typical, *more, **named)
        return last[2]

    return answer


@remembers_the_last
def by_size(typical: Typical) -> tuple[Plain, Typical]:
    """Separates plain demands from the others."""
    sizes = [(kind.plain, weight, kind) for weight, kind in typical]
    plain = sorted((size, weight) for size, weight, _ in sizes if size is not None)
    sums = accumulate((weight for _, weight in plain), initial=0)
    others = tuple((weight, kind) for size, weight, kind in sizes if size is None)
    return Plain(tuple(size for size, _ in plain), tuple(sums)), others


def increases(rooms: Sequence[Room], typical: Typical) -> Callable[[int, Room], int]:
    """Makes a function that returns the coarse increase if one GPU changes; it reads only that GPU."""
    free = sum(room.free for room in rooms)
    card = max(room.gpu.memory for room in rooms)
    plain, others = by_size(typical)
    kinds = list[tuple[float, Demand, list[bool], int, int]]()
    for weight, kind in others:
        fit = [room.fits(kind) for room in rooms]
        unfit = sum(room.free for room, does in zip(rooms, fit, strict=True) if not does)
        kinds.append((weight, kind, fit, unfit, sum(fit)))

    def increase_by(at: int, after: Room) -> int:
        was = rooms[at].free
        increase = plain.lost(after.free) - plain.lost(was)
        for weight, kind, fit, unfit, cards in kinds:
            does = after.fits(kind)
            unfit_after = unfit - (0 if fit[at] else was) + (0 if does else after.free)
            lost_after = _lost(free - was + after.free, unfit_after, cards - fit[at] + does, kind)
            increase += weight * (lost_after - _lost(free, unfit, cards, kind))
        return coarse(increase, typical, card)

    return increase_by

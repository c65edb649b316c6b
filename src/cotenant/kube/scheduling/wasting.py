"""How much free memory a placement loses to the demands that are likely to come, for many nodes at once.

The measure is the core's (`core/fragmentation.py`), figure for figure. Nodes are taken a thousand at a time,
so that what is computed on the way stays in the processor's cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.fragmentation import Typical, by_size
from cotenant.kube.scheduling.filling import Filling
from cotenant.kube.scheduling.matrix import Bools, Bytes, Percents, Window
from cotenant.kube.scheduling.wants import Want, how_many, want

_SAFE = 2**62


@dataclass(frozen=True, slots=True)
class Likely:
    """The typical demands with their weights, as whole numbers where they are."""

    kinds: tuple[tuple[int | float, Demand], ...]
    total: int | float

    @property
    def dtype(self) -> type[np.int64 | np.float64]:
        return np.int64 if isinstance(self.total, int) else np.float64

    def nothing(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.zeros(shape, self.dtype)

    def coarse(self, increase: NDArray[Any], card: Bytes) -> Bytes:
        """In tenths of a card, as the core's `coarse`; `card` is the size of each node's largest."""
        unit = self.total * card
        tenths = np.zeros_like(increase)
        np.floor_divide(10 * increase, unit, out=tenths, where=unit != 0)
        coarse: Bytes = tenths.astype(np.int64, copy=False)
        return coarse


def likely(typical: Typical, window: Window) -> Likely:
    """Whole numbers while they are small enough to be exact, floats otherwise."""
    weights = [weight for weight, _ in typical]
    total: int | float = sum(weights)
    if all(float(weight).is_integer() for weight in weights):
        whole = [int(weight) for weight in weights]
        common = math.gcd(*whole) or 1
        weights = [weight // common for weight in whole]
        total = sum(weights)
        largest = int(window.size.max(initial=0)) * max(1, window.size.shape[0])
        if 20 * max(1, total) * largest >= _SAFE:
            weights, total = [float(weight) for weight in weights], float(total)
    return Likely(tuple(zip(weights, (demand for _, demand in typical), strict=True)), total)


def increase_by_card(window: Window, part: Want, typical: Typical) -> Bytes:
    """For each card: the coarse increase on its node if the demand's one part goes there.

    To a demand for one card, memory is lost or not card by card, so what the other cards have does not
    matter. That is most demands, and what takes the time here.
    """
    free = window.free
    after: Bytes = np.zeros_like(free) if part.whole else free - part.need
    compute: Percents = window.compute - np.int8(100 if part.whole else part.compute)
    chances = likely(typical, window)
    plain, others = by_size(chances.kinds)
    needs, sums = np.array(plain.needs, np.int64), np.array(plain.sums, chances.dtype)
    useful_before: NDArray[Any] = sums.take(needs.searchsorted(free, "right"))
    useful_after: NDArray[Any] = sums.take(needs.searchsorted(after, "right"))
    rest, singles = chances.nothing(free.shape), plain.sums[-1]
    for weight, demand in others:
        kind = want(demand, window)
        fit = kind.fits(free, window.compute, window.unused)
        still = None if kind.whole else kind.fits(after, compute, window.unused)
        if kind.count > 1:
            rest += weight * _more_lost(kind, free, after, fit, still)
            continue
        singles += weight
        useful_before += weight * fit
        if still is not None:
            useful_after += weight * still
    increase = rest + after * (singles - useful_after) - free * (singles - useful_before)
    return chances.coarse(increase, np.broadcast_to(window.size.max(axis=0), free.shape))


def _more_lost(kind: Want, free: Bytes, after: Bytes, fit: Bools, still: Bools | None) -> Bytes:
    """For each card: how much more is lost to the kind on its node, if it fits still or no more (None)."""
    now: Bytes = free.sum(axis=0)
    cards, useless = how_many(fit), np.where(fit, 0, free)
    here: Bytes = useless.sum(axis=0)
    before = np.where(cards < kind.count, now, here)
    if still is None:
        lost, left = here - useless + after, cards - fit
    else:
        lost, left = here - useless + np.where(still, 0, after), cards - fit + still
    more: Bytes = np.where(left < kind.count, now - free + after, lost) - before
    return more


def increase_by_node(window: Window, filling: Filling, typical: Typical) -> Bytes:
    """For each node: the coarse increase by all that was put on it."""
    chances = likely(typical, window)
    increase = chances.nothing((window.width,))
    for weight, demand in chances.kinds:
        kind = want(demand, window)
        before = _lost(kind, window.free, window.compute, window.unused)
        after = _lost(kind, filling.free, filling.compute, filling.unused)
        increase += weight * (after - before)
    return chances.coarse(increase, window.size.max(axis=0))


def _lost(kind: Want, free: Bytes, compute: Percents, unused: Bools) -> Bytes:
    fit = kind.fits(free, compute, unused)
    enough = how_many(fit) >= kind.count
    lost: Bytes = np.where(enough, np.where(fit, 0, free).sum(axis=0), free.sum(axis=0))
    return lost

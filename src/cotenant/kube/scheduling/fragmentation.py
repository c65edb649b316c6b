"""Measures how much free memory a placement loses for the demands that are likely to come, for many nodes at
once.

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
from cotenant.core.fragmentation import Typical, by_size, remembers_the_last
from cotenant.kube.scheduling.demand_mask import DemandMask, how_many, want
from cotenant.kube.scheduling.filling import Filling
from cotenant.kube.scheduling.matrix import Bools, Bytes, Percents, Window

_SAFE = 2**62


@dataclass(frozen=True, slots=True)
class Likely:
    """The typical demands with their weights, as whole numbers where they are."""

    kinds: tuple[tuple[int | float, Demand], ...]
    total: int | float
    """The sum of the weights; 1 if they are zero."""
    needs: Bytes
    """Of those that are plain, from the least to the largest: see the core's `Plain`."""
    losing: NDArray[Any]
    """The weight of all but the first none, one, two ... of them."""
    others: Typical

    def nothing(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.zeros(shape, self.losing.dtype)

    def lost(self, free: Bytes) -> NDArray[Any]:
        """To the plain ones: of cards with so much free memory, times the weights."""
        lost: NDArray[Any] = free * self.losing.take(self.needs.searchsorted(free, "right"))
        return lost

    def coarse(self, increase: NDArray[Any], card: Bytes) -> Bytes:
        """In tenths of a card, as the core's `coarse`; `card` is the size of each node's largest."""
        tenths: NDArray[Any] = 10 * increase // (self.total * card)
        coarse: Bytes = tenths.astype(np.int64, copy=False)
        return coarse


@remembers_the_last
def likely(typical: Typical, most: int) -> Likely:
    """Whole numbers while they are small enough to be exact, floats otherwise. No node has more than `most`
    bytes.
    """
    weights = [weight for weight, _ in typical]
    exact = all(float(weight).is_integer() for weight in weights)
    if exact:
        whole = [int(weight) for weight in weights]
        common = math.gcd(*whole) or 1
        weights = [weight // common for weight in whole]
        exact = 20 * max(1, sum(weights)) * most < _SAFE
    if not exact:
        weights = [float(weight) for weight in weights]
    dtype = np.int64 if exact else np.float64
    kinds = tuple(zip(weights, (demand for _, demand in typical), strict=True))
    plain, others = by_size(kinds)
    sums = np.array(plain.sums, dtype)
    return Likely(kinds, sum(weights) or 1, np.array(plain.needs, np.int64), sums[-1] - sums, others)


def increase_by_card(window: Window, part: DemandMask, after: Bytes, typical: Typical) -> Bytes:
    """For each card: the coarse increase on its node if the demand's one part goes there, which leaves
    `after` free.

    To a demand for one card, memory is lost or not card by card, so what the other cards have does not
    matter. That is most demands, and what takes the time here.
    """
    free = window.free
    chances = likely(typical, window.matrix.most)
    increase = chances.lost(after) - chances.lost(free)
    for weight, demand in chances.others:
        kind = want(demand, window)
        compute: Percents = window.compute - np.int8(100 if part.whole else part.compute)
        fit = kind.fits(free, window.compute, window.unused)
        still = None if kind.whole else kind.fits(after, compute, window.unused)
        if kind.count > 1:
            increase += weight * _more_lost(kind, free, after, fit, still)
            continue
        lost = after if still is None else np.where(still, 0, after)
        increase += weight * (lost - np.where(fit, 0, free))
    return chances.coarse(increase, window.largest)


def _more_lost(kind: DemandMask, free: Bytes, after: Bytes, fit: Bools, still: Bools | None) -> Bytes:
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
    chances = likely(typical, window.matrix.most)
    increase = chances.nothing((window.width,))
    for weight, demand in chances.kinds:
        kind = want(demand, window)
        before = _lost(kind, window.free, window.compute, window.unused)
        after = _lost(kind, filling.free, filling.compute, filling.unused)
        increase += weight * (after - before)
    return chances.coarse(increase, window.largest)


def _lost(kind: DemandMask, free: Bytes, compute: Percents, unused: Bools) -> Bytes:
    fit = kind.fits(free, compute, unused)
    enough = how_many(fit) >= kind.count
    lost: Bytes = np.where(enough, np.where(fit, 0, free).sum(axis=0), free.sum(axis=0))
    return lost

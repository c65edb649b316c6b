"""Places several demands on a node's GPUs one after another, on all nodes at once.

Best fit, as the core's `choose` does it by the policy `binpack`: the GPU where least is left, then the
smaller one, then the first. Each part of a demand goes to a GPU of its own; two demands may share a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.demand_mask import DemandMask, enough, in_order, want
from cotenant.kube.scheduling.kinds import NO_CARD, NOWHERE
from cotenant.kube.scheduling.matrix import Bools, Bytes, Percents, Window


class CardAmounts(NamedTuple):
    """What the GPUs of a window have free."""

    free: Bytes
    compute: Percents
    unused: Bools


@dataclass(slots=True)
class Filling:
    """The GPUs of a window while demands are placed on them."""

    free: Bytes
    compute: Percents
    unused: Bools
    size: Bytes
    fits: Bools
    """By node: whether all demands so far had room."""
    left: Bytes
    """By node: what is left on the cards taken, summed over the parts."""
    sizes: Bytes
    """By node: the sizes of the cards taken, summed over the parts."""
    taken: list[NDArray[np.intp]] = field(default_factory=list)
    """For each part: by node, the column of its card; of no meaning where it does not fit."""
    befores: list[tuple[Bytes, Bools]] = field(default_factory=list)
    """For each part: by node, what the card had free before, and whether nothing used it."""
    afters: list[Bytes] = field(default_factory=list)
    """For each part: by node, what it leaves free on the card."""

    def put(self, part: DemandMask, open_: Bools | None) -> None:
        """Places one demand on every node that has had room so far."""
        fit = part.fits(self.free, self.compute, self.unused)
        if open_ is not None:
            fit &= open_
        self.fits &= enough(fit, part.count)
        if not self.fits.any():
            return
        nodes = np.arange(len(self.fits))
        for _ in range(part.count):
            after = np.zeros_like(self.free) if part.whole else self.free - part.need
            best = best_of(fit, after, self.size)
            fit[best, nodes] = False
            self.left += after[best, nodes]
            self.sizes += self.size[best, nodes]
            self.taken.append(best)
            self.befores.append((self.free[best, nodes], self.unused[best, nodes]))
            self.afters.append(after[best, nodes])
            self._take(best, part)

    def _take(self, column: NDArray[np.intp], part: DemandMask) -> None:
        at = np.flatnonzero(self.fits)
        columns = column[at]
        self.unused[columns, at] = False
        if part.whole:
            self.free[columns, at] = 0
            self.compute[columns, at] = 0
        else:
            need = part.need if isinstance(part.need, int) else part.need[columns, at]
            self.free[columns, at] -= need
            self.compute[columns, at] -= part.compute


def best_of(mask: Bools, *keys: Bytes) -> NDArray[np.intp]:
    """Returns, by node, the column of the least of those that the mask allows, by the first key, then the
    next.
    """
    for key in keys[:-1]:
        ranked = np.where(mask, key, NOWHERE)
        mask = mask & (ranked == ranked.min(axis=0))
    best: NDArray[np.intp] = np.where(mask, keys[-1], NOWHERE).argmin(axis=0)
    return best


def fill(
    window: Window, demands: Sequence[Demand], open_: Bools | None, cards: CardAmounts | None = None
) -> Filling:
    """Places the demands on the GPUs as they are now, or as given, which are then changed.

    `open_` says which GPUs may be taken; None means all.
    """
    nodes = window.width
    free, compute, unused = cards or now(window)
    filling = Filling(
        free,
        compute,
        unused,
        window.size,
        fits=np.ones(nodes, np.bool_),
        left=np.zeros(nodes, np.int64),
        sizes=np.zeros(nodes, np.int64),
    )
    for demand in in_order(demands):
        filling.put(want(demand, window), open_)
        if not filling.fits.any():
            break
    return filling


def now(window: Window) -> CardAmounts:
    return CardAmounts(window.free.copy(), window.compute.copy(), window.unused.copy())


def drained(window: Window) -> CardAmounts:
    """Returns the GPUs as they will be when every grant on them has ended; what is held outside grants may
    never end.
    """
    return CardAmounts(window.emptied.copy(), np.full_like(window.compute, 100), window.clean.copy())


def brand_new(window: Window) -> CardAmounts:
    """Returns the GPUs as if they were healthy and unused."""
    return CardAmounts(window.size.copy(), np.full_like(window.compute, 100), window.kind != NO_CARD)

"""Which of the nodes on which a pod fits is the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.filling import fill
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.matrix import Rows, Window
from cotenant.kube.scheduling.scan import Verdict, open_cards, scan

BEST = 10


def scores(fleet: Fleet, uid: str, demands: Sequence[Demand], rows: Rows) -> NDArray[np.int64]:
    """10 for the best, 9 to 0 for the others by rank, 0 where it does not fit."""
    result = np.zeros(len(rows), np.int64)
    fits = np.flatnonzero(scan(fleet, uid, demands, rows) == Verdict.FITS)
    if not len(fits):
        return result
    window = Window(fleet.matrix, rows[fits])
    filling = fill(window, demands, open_cards(window, fleet.held_places(uid)))
    order = fits[np.lexsort((rows[fits], filling.sizes, filling.left))]
    result[order] = by_rank(len(order))
    return result


def by_rank(count: int) -> NDArray[np.int64]:
    """10, then 9 down to 0 in even steps."""
    result = np.full(count, BEST, np.int64)
    if count > 1:
        result[1:] = 9 - np.arange(count - 1) * 10 // (count - 1)
    return result

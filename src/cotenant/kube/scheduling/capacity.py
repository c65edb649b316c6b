"""Counts how many more pods of a kind could be placed now, for several kinds that compete for the same GPUs.

What is counted for one is taken from what the next one is offered. The ledger itself is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.filling import CardAmounts, fill, now
from cotenant.kube.scheduling.matrix import Rows, Window
from cotenant.kube.scheduling.scan import open_cards


class Capacity:
    """The free room of the cluster at one moment, for one round of questions. GPUs that are held for a pod in
    line are not counted.
    """

    def __init__(self, cluster: ClusterLedger, rows: Rows) -> None:
        """`rows`: the nodes that take pods."""
        self._window = Window(cluster.matrix, rows)
        self._open = open_cards(self._window, None)
        self._cards = now(self._window)

    def take(self, demands: Sequence[Demand], most: int, where: Sequence[bool] | None = None) -> int:
        """Takes room for as many pods with these demands as fit, at most `most`, and returns how many.
        `where`: for each of the nodes, whether these pods may go there.
        """
        if not demands:
            return most
        allowed = None if where is None else np.asarray(where, np.bool_)
        taken = 0
        while taken < most and self._window.width:
            cards = self._cards
            trial = CardAmounts(cards.free.copy(), cards.compute.copy(), cards.unused.copy())
            filling = fill(self._window, demands, self._open, trial)
            fits = filling.fits if allowed is None else filling.fits & allowed
            if not fits.any():
                break
            left = np.where(fits, filling.left, np.iinfo(np.int64).max)
            node = int(left.argmin())
            cards.free[:, node] = filling.free[:, node]
            cards.compute[:, node] = filling.compute[:, node]
            cards.unused[:, node] = filling.unused[:, node]
            taken += 1
        return taken

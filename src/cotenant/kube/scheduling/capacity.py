"""Counts how many more pods of a kind could be placed now, for several kinds that compete for the same GPUs.

Each pod goes where the policy would have it. What is counted for one is taken from what the next one is
offered. The ledger itself is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core.demand import Demand
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.filling import fill
from cotenant.kube.scheduling.matrix import Bools, Rows, Window, open_cards
from cotenant.kube.scheduling.ranking import best_on_copy
from cotenant.kube.scheduling.scan import room


class Capacity:
    """The free room of the cluster at one moment, for one round of questions. GPUs that are held for a pod in
    line are not counted.
    """

    def __init__(self, cluster: ClusterLedger, rows: Rows) -> None:
        """`rows`: the nodes that take pods."""
        self._cluster, self._rows = cluster, rows
        self._matrix = cluster.matrix.copy()

    def take(
        self,
        demands: Sequence[Demand],
        most: int,
        where: Sequence[bool] | None = None,
        requests: Requests = NO_REQUESTS,
    ) -> int:
        """Takes room for as many pods with these demands as fit, at most `most`, and returns how many.
        `where`: for each of the nodes, whether these pods may go there; `requests`: what each takes there
        beside GPUs.
        """
        if not demands:
            return most
        rows = self._rows if where is None else self._rows[np.asarray(where, np.bool_)]
        fit, taken = rows[self._fits(demands, requests, rows)], 0
        while taken < most:
            row = best_on_copy(self._cluster, self._matrix, demands, fit, requests)
            if row is None:
                break
            self._take(row, demands, requests)
            taken += 1
            if not self._fits(demands, requests, np.array([row], np.int32))[0]:
                fit = fit[fit != row]
        return taken

    def _fits(self, demands: Sequence[Demand], requests: Requests, rows: Rows) -> Bools:
        window = Window(self._matrix, rows)
        beside = (window.cpu >= requests.cpu) & (window.memory >= requests.memory) & (window.pods >= 1)
        fits: Bools = room(window, demands, open_cards(window, None)) & beside
        return fits

    def _take(self, row: int, demands: Sequence[Demand], requests: Requests) -> None:
        window, matrix = Window(self._matrix, np.array([row], np.int32)), self._matrix
        filling = fill(window, demands, open_cards(window, None))
        matrix.free[:, row] = filling.free[:, 0]
        matrix.compute[:, row] = filling.compute[:, 0]
        matrix.unused[:, row] = filling.unused[:, 0]
        matrix.take_beside(row, requests)

"""Remembers which rows gained room lately.

Room that one pod was woken for may be left over: the pod went elsewhere, or something else keeps it. So a row
that gained room is looked at again for a while.
"""

from __future__ import annotations

import numpy as np

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.matrix import Rows


class RecentRoom:
    """Times are on the clock of `now`."""

    def __init__(self, cluster: ClusterLedger, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._until: dict[int, float] = {}

    def rows(self, now: float) -> Rows:
        for row in self._cluster.take_gained().tolist():
            self._until[row] = now + self._seconds
        self._until = {row: until for row, until in self._until.items() if until >= now}
        return np.array(sorted(self._until), np.int32)

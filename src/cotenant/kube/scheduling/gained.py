"""Rows that gained room lately.

Room that one pod was woken for may be left over: the pod went elsewhere, or something else keeps it.
So a row that gained is looked at again for a while.
"""

from __future__ import annotations

import numpy as np

from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.matrix import Rows


class Gained:
    """Times are on the clock of `now`."""

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        self._fleet = fleet
        self._seconds = seconds
        self._until: dict[int, float] = {}

    def rows(self, now: float) -> Rows:
        for row in self._fleet.take_gained().tolist():
            self._until[row] = now + self._seconds
        self._until = {row: until for row, until in self._until.items() if until >= now}
        return np.array(sorted(self._until), np.int32)

"""Decides as the HorizontalPodAutoscaler of Kubernetes does, on an external metric of type AverageValue.

The metric is the backlog in seconds of work, the target a number of seconds for each replica. Everything
else is the default of `autoscaling/v2` and kube-controller-manager: a sync every 15 s, a tolerance of
10%, upwards at most 4 pods or 100% more within 15 s, downwards the highest recommendation of the last 300
s.
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/
"""

from __future__ import annotations

import math
from collections import deque

from cotenant.simulate.scaling.observation import Answer, Observation

SYNC = 15.0
TOLERANCE = 0.1
STABILIZATION = 300.0
UP_PODS, UP_PERCENT, UP_PERIOD = 4, 100, 15.0


class HorizontalPodAutoscaler:
    """Remembers its recommendations and its steps up, as kube-controller-manager does in memory."""

    period = SYNC

    def __init__(self, *, target: float, service: float, maximum: int) -> None:
        """`service` are seconds of one replica that a waiting message stands for."""
        self._target = target
        self._service = service
        self._maximum = maximum
        self._recommended: deque[tuple[float, int]] = deque()
        self._raised: deque[tuple[float, int]] = deque()

    def decide(self, seen: Observation) -> Answer:
        """Returns the wanted replicas; without the metric nothing changes."""
        now, current = seen.now, seen.replicas
        if not self._recommended:
            self._recommended.append((now, current))
        if seen.figures is None:
            return Answer(current)
        usage = seen.figures.backlog * self._service
        wanted = max(1, min(self._maximum, self._recommend(usage, current)))
        stable = self._stabilize(now, wanted, current)
        result = min(stable, self._limit_up(now, current)) if stable > current else stable
        if result > current:
            self._raised.append((now, result - current))
        return Answer(result, reason=f"backlog {usage:.1f} s for {self._target:g} s a replica")

    def _recommend(self, usage: float, current: int) -> int:
        ratio = usage / (self._target * max(1, current))
        return current if abs(ratio - 1) <= TOLERANCE else math.ceil(usage / self._target)

    def _stabilize(self, now: float, wanted: int, current: int) -> int:
        """Going down, takes the highest recommendation of the window; going up, there is no window."""
        while self._recommended and self._recommended[0][0] <= now - STABILIZATION:
            self._recommended.popleft()
        highest = max([wanted, *(each for _, each in self._recommended)])
        self._recommended.append((now, wanted))
        return wanted if wanted >= current else highest

    def _limit_up(self, now: float, current: int) -> int:
        while self._raised and self._raised[0][0] <= now - UP_PERIOD:
            self._raised.popleft()
        before = current - sum(step for _, step in self._raised)
        return max(current, before + UP_PODS, math.ceil(before * (1 + UP_PERCENT / 100)))

"""Decides as the Knative Pod Autoscaler does, by concurrency, with the defaults of `config-autoscaler`.

Concurrency counts requests in a pod and those that wait for one. Its average over 60 s (stable) and 6 s
(panic) is divided by 70% of what a pod takes at once. Panic begins where the 6 s ask for twice the ready
pods, and lasts until 60 s after the last such moment; meanwhile nothing is removed. A decision every 2 s.
https://knative.dev/docs/serving/autoscaling/kpa-specific/
"""

from __future__ import annotations

import math
from collections import deque

from cotenant.simulate.scaling.observation import Answer, Observation

TICK = 2.0
STABLE, PANIC = 60.0, 6.0
USE = 0.7
PANIC_THRESHOLD = 2.0
UP_RATE, DOWN_RATE = 1000.0, 2.0
GRACE = 30.0
"""Seconds for which the last pod stays after the stable window asked for zero."""


class KnativePodAutoscaler:
    """Remembers the concurrency of the stable window, and since when it panics."""

    period = TICK

    def __init__(self, *, concurrency: int) -> None:
        self._target = concurrency * USE
        self._areas: deque[tuple[float, float]] = deque()
        self._panic: float | None = None
        self._most = 0
        self._zero_since: float | None = None

    def decide(self, seen: Observation) -> Answer:
        """Returns the wanted replicas; without figures nothing changes."""
        if seen.figures is None:
            return Answer(seen.replicas)
        now, ready = seen.now, max(1, seen.fleet.ready)
        if not self._areas:
            self._areas.append((0.0, 0.0))
        self._areas.append((seen.figures.at, seen.figures.concurrency_seconds))
        while len(self._areas) > 2 and self._areas[1][0] <= seen.figures.at - STABLE:
            self._areas.popleft()
        low, high = math.floor(ready / DOWN_RATE), math.ceil(UP_RATE * ready)
        asked = math.ceil(self._average(PANIC) / self._target)
        stable = min(max(math.ceil(self._average(STABLE) / self._target), low), high)
        panic = min(max(asked, low), high)
        if asked / ready >= PANIC_THRESHOLD:
            self._panic = now
        elif self._panic is not None and self._panic + STABLE < now:
            self._panic, self._most = None, 0
        wanted = stable
        if self._panic is not None:
            wanted = self._most = max(self._most, stable, panic)
        return Answer(self._keep_last(now, wanted), state="" if self._panic is None else "panic")

    def _average(self, window: float) -> float:
        """Returns the mean concurrency of the last `window` seconds, or of what is known of them."""
        end, area = self._areas[-1]
        begin, before = next(
            each for each in self._areas if each[0] >= end - window or each is self._areas[-2]
        )
        return (area - before) / (end - begin) if end > begin else 0.0

    def _keep_last(self, now: float, wanted: int) -> int:
        """Holds the last pod for a grace period, so that the activator can take over."""
        if wanted > 0:
            self._zero_since = None
            return wanted
        self._zero_since = now if self._zero_since is None else self._zero_since
        return 0 if now - self._zero_since >= GRACE else 1

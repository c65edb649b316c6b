"""Decides by queueing theory alone: the fewest replicas with which 5% of the messages would be late.

The arrival rate of the last five minutes goes into Erlang's C formula. No backlog is cleared, nothing is
kept for peaks: this shows what the formula does by itself.
"""

from __future__ import annotations

import math
from collections import deque

from cotenant.core.queueing import servers
from cotenant.simulate.scaling.observation import Answer, Observation

WINDOW = 300.0
LATE = 0.05
WORTH = 1e12
"""One more replica is always worth it."""
SHORTEST = 1e-3


class ErlangC:
    """Remembers the arrivals of the window."""

    def __init__(
        self, *, target: float, service: float, concurrency: int, period: float, maximum: int
    ) -> None:
        self.period = period
        self._target = target
        self._service = service
        self._concurrency = concurrency
        self._most = maximum * concurrency
        self._counts: deque[tuple[float, int]] = deque([(0.0, 0)])

    def decide(self, seen: Observation) -> Answer:
        """Returns the wanted replicas; without figures nothing changes."""
        if seen.figures is None:
            return Answer(seen.replicas)
        if seen.figures.arrived < self._counts[-1][1]:
            self._counts = deque([(seen.now, seen.figures.arrived)])
            return Answer(seen.replicas)
        self._counts.append((seen.now, seen.figures.arrived))
        while len(self._counts) > 2 and self._counts[1][0] <= seen.now - WINDOW:
            self._counts.popleft()
        (begin, before), (end, after) = self._counts[0], self._counts[-1]
        load = (after - before) / max(1.0, end - begin) * self._service
        patience = self._target / max(SHORTEST, self._service)
        (slots,) = servers(load, patience, [(LATE, WORTH)], self._most)
        return Answer(max(1, math.ceil(slots / self._concurrency)), reason=f"{load:.1f} busy slots")

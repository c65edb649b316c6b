"""Holds the requests of a simulation: when each arrives, and how long a replica works on it."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.core.errors import BadInput

LARGEST = 20_000_000
"""Requests of one simulation; they take 16 bytes each, and about a microsecond a policy."""
JITTER = 5.0
"""Seconds by which a request of a laid-over copy may come earlier or later."""
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of their arrival; times are seconds after the first."""

    arrivals: Sequence[float]
    services: Sequence[float]

    def __post_init__(self) -> None:
        if not self.arrivals:
            raise BadInput("the trace has no request: give one with at least two lines")
        if len(self.arrivals) != len(self.services):
            raise ValueError("each request needs a service time")

    @property
    def duration(self) -> float:
        """Seconds from the first arrival to the last, at least one."""
        return max(1.0, self.arrivals[-1] - self.arrivals[0])

    @property
    def work(self) -> float:
        """Seconds of one replica's time that all requests need together."""
        return math.fsum(self.services)

    @property
    def mean_service(self) -> float:
        return self.work / len(self.services)

    def scaled(self, mean: float) -> Workload:
        """Stretches all service times by one factor, so that their mean is `mean` seconds."""
        present = self.mean_service
        if present <= 0:
            return Workload(self.arrivals, array("d", [mean]) * len(self.services))
        factor = mean / present
        return Workload(self.arrivals, array("d", (each * factor for each in self.services)))

    def overlaid(self, times: int, seed: int) -> Workload:
        """Lays the trace over itself: copies of each request arrive within JITTER seconds of it."""
        if times <= 1:
            return self
        if times * len(self.arrivals) > LARGEST:
            raise BadInput(
                f"overlay: {times} times {len(self.arrivals)} requests are more than {LARGEST}: use a "
                "shorter trace or fewer copies"
            )
        chance = random.Random(seed)
        pairs = sorted(
            (max(0.0, at + chance.uniform(-JITTER, JITTER)) if copy else at, service)
            for copy in range(times)
            for at, service in zip(self.arrivals, self.services, strict=True)
        )
        return Workload(array("d", [at for at, _ in pairs]), array("d", [service for _, service in pairs]))

    def busy(self) -> float:
        """Returns how many replicas the work keeps busy on average."""
        return self.work / self.duration

    def first_replicas(self, concurrency: int = 1) -> int:
        """Returns the replicas to begin with: the work of the first two minutes at 70% use."""
        first = math.fsum(
            service for at, service in zip(self.arrivals, self.services, strict=True) if at < 2 * MINUTE
        )
        return max(1, math.ceil(first / (2 * MINUTE) / 0.7 / concurrency))

    def bound(self, concurrency: int = 1) -> float:
        """Returns replica-seconds: about the least that does the work of each minute within that minute.

        One replica at least. Requests that are worked on together share a replica's time.
        """
        minutes = [0.0] * (int(self.arrivals[-1] // MINUTE) + 1)
        for at, service in zip(self.arrivals, self.services, strict=True):
            minutes[int(at // MINUTE)] += service
        return math.fsum(max(MINUTE, work / concurrency) for work in minutes)

"""Runs arrivals through a cluster and counts what was allocated and what was refused."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from cotenant.simulate.placement.workload import Arrival, SimulatedPod


class Placer(Protocol):
    """Whatever places pods: the cluster's own decisions, or others that they are compared with."""

    def place(self, uid: str, pod: SimulatedPod, /) -> object | None:
        """Places a pod; None if it fits nowhere."""

    def end(self, uid: str, /) -> None:
        """Ends a pod that was placed."""


@dataclass
class Outcome:
    """What came of the pods, in bytes of GPU memory."""

    asked: int = 0
    refused: int = 0
    allocated: int = 0
    """At the end."""
    pods: int = 0
    seconds: list[float] = field(default_factory=list)
    """What each decision took, by the clock that was given."""


def run(
    placer: Placer,
    arrivals: Iterable[Arrival],
    card: int,
    skip: int = 0,
    clock: Callable[[], float] | None = None,
) -> Outcome:
    """Offers the pods one after another. The first `skip` are not counted in what was asked and refused."""
    outcome, ends = Outcome(), list[tuple[float, int, int]]()
    for at, arrival in enumerate(arrivals):
        while ends and ends[0][0] <= at:
            _, number, size = heapq.heappop(ends)
            placer.end(f"pod-{number}")
            outcome.allocated -= size
        size = arrival.pod.bytes(card)
        began = clock() if clock else 0.0
        placed = placer.place(f"pod-{at}", arrival.pod) is not None
        if clock:
            outcome.seconds.append(clock() - began)
        outcome.pods += 1
        if at >= skip:
            outcome.asked += size
            outcome.refused += 0 if placed else size
        if placed:
            outcome.allocated += size
            if arrival.stays is not None:
                heapq.heappush(ends, (at + arrival.stays, at, size))
    return outcome

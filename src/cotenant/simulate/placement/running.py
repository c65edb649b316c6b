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


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of one arrival."""

    number: int
    uid: str
    pod: SimulatedPod
    size: int
    """Bytes of GPU memory that it asks for."""
    fits: bool
    counted: bool
    """Whether it is one of those that count."""


def run(
    placer: Placer,
    arrivals: Iterable[Arrival],
    card: int | Callable[[SimulatedPod], int],
    skip: int = 0,
    clock: Callable[[], float] | None = None,
    *,
    there: Iterable[tuple[float, str, int]] = (),
    watch: Callable[[Placed], None] | None = None,
) -> Outcome:
    """Offers the pods one after another. The first `skip` are not counted in what was asked and refused.

    `card`: the size of all cards, or a function that returns what a pod asks for. `there`: pods that are
    there already: when they end, their UIDs and sizes. `watch` is called after each decision.
    """
    size_of = card if callable(card) else lambda pod: pod.bytes(card)
    leaving = list(there)
    heapq.heapify(leaving)
    outcome = Outcome(allocated=sum(size for _, _, size in leaving))
    for number, arrival in enumerate(arrivals):
        now = number if arrival.at is None else arrival.at
        while leaving and leaving[0][0] <= now:
            _, gone, size = heapq.heappop(leaving)
            placer.end(gone)
            outcome.allocated -= size
        size, uid = size_of(arrival.pod), f"arrival/{number}"
        began = clock() if clock else 0.0
        placed = placer.place(uid, arrival.pod) is not None
        if clock:
            outcome.seconds.append(clock() - began)
        outcome.pods += 1
        if number >= skip:
            outcome.asked += size
            outcome.refused += 0 if placed else size
        if placed:
            outcome.allocated += size
            if arrival.stays is not None:
                heapq.heappush(leaving, (now + arrival.stays, uid, size))
        if watch is not None:
            watch(Placed(number, uid, arrival.pod, size, placed, number >= skip))
    return outcome

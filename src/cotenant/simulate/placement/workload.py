"""Describes simulated nodes and pods, and in which order the pods come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node as it is before any pod is on it."""

    name: str
    gpus: tuple[GPU, ...]
    has: Spare

    @property
    def bytes(self) -> int:
        return sum(gpu.memory for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """What a pod asks for. Without demands it needs no GPU."""

    demands: tuple[Demand, ...]
    cpu: int
    """Thousandths."""
    memory: int
    """Bytes of the host's memory."""

    def bytes(self, card: int) -> int:
        """Returns the GPU memory that it asks for where all cards have this size."""
        return sum(demand.count * demand.per_card(card) for demand in self.demands)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes, and how long it stays, counted in pods that come after it."""

    pod: SimulatedPod
    stays: float | None = None
    """None: for good."""


def inflated(pods: Sequence[SimulatedPod], room: int, card: int, load: float, seed: int) -> list[Arrival]:
    """Shuffles the pods, then appends random ones until they ask for `load` times the room; nobody leaves.

    That is the protocol of "Beware of Fragmentation" (USENIX ATC '23).
    """
    chance, coming = Random(seed), list(pods)
    chance.shuffle(coming)
    asked = sum(pod.bytes(card) for pod in coming)
    while asked < load * room:
        coming.append(chance.choice(pods))
        asked += coming[-1].bytes(card)
    return [Arrival(pod) for pod in coming]


def with_departures(
    pods: Sequence[SimulatedPod], room: int, card: int, load: float, seed: int, count: int
) -> Iterator[Arrival]:
    """Draws pods at random that stay for a random time (exponential): on average as many are there as ask for
    `load` times the room.
    """
    chance = Random(seed)
    mean = load * room * len(pods) / sum(pod.bytes(card) for pod in pods)
    for _ in range(count):
        yield Arrival(chance.choice(pods), chance.expovariate(1 / mean))

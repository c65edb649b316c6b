"""Describes simulated nodes and pods, and in which order the pods come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import Spare


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node as it is before any pod is on it."""

    name: str
    gpus: tuple[GPU, ...]
    has: Spare
    outside: Mapping[str, int] = field(default_factory=dict)
    """Bytes held outside grants, by UUID."""
    cordoned: bool = False
    """Whether it takes no new pods."""

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

    def by(self, placement: str) -> SimulatedPod:
        """Returns the same pod, placed by this policy."""
        return replace(self, demands=tuple(replace(each, placement=placement) for each in self.demands))


@dataclass(frozen=True, slots=True)
class RecordedPod:
    """A pod of a trace or of a dump, with what is known of it beside its demands."""

    pod: SimulatedPod
    workload: str = ""
    version: str = ""
    containers: tuple[str, ...] = ()
    """The container of each demand, as far as they are known."""
    created: float | None = None
    """Seconds since some moment, the same for all."""
    ended: float | None = None
    uid: str = ""
    """Of a pod that runs; empty if it does not."""
    node: str = ""
    shares: tuple[Share, ...] = ()
    """What it holds on the GPUs of this node."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Nodes and pods of a trace or of a dump."""

    nodes: tuple[SimulatedNode, ...]
    pods: tuple[RecordedPod, ...]
    sized: bool = True
    """Whether the sizes of cards are known; otherwise all count the same."""
    like_running: bool = True
    """Whether pods like those that run come, too; otherwise only those without a node do."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes, and how long it stays."""

    pod: SimulatedPod
    stays: float | None = None
    """In the unit of `at`. None: for good."""
    at: float | None = None
    """When it comes; None: time is counted in pods that have come before it."""


def inflated(pods: Sequence[SimulatedPod], room: int, card: int, load: float, seed: int) -> list[Arrival]:
    """Shuffles the pods, then appends random ones until they ask for `load` times the room; nobody leaves.

    That is the protocol of "Beware of Fragmentation" (USENIX ATC '23).
    """
    return [Arrival(pods[at]) for at in shuffled([pod.bytes(card) for pod in pods], load * room, seed)]


def with_departures(
    pods: Sequence[SimulatedPod], room: int, card: int, load: float, seed: int, count: int
) -> Iterator[Arrival]:
    """Draws pods at random that stay for a random time (exponential): on average as many are there as ask for
    `load` times the room.
    """
    mean = mean_stay([pod.bytes(card) for pod in pods], load * room)
    for at, stays in drawn(len(pods), mean, seed, count):
        yield Arrival(pods[at], stays)


def shuffled(sizes: Sequence[int], asked: float, seed: int, count: int | None = None) -> list[int]:
    """Returns the positions of all pods in random order, then random ones until they ask for this many bytes
    in all, or exactly `count` of them.
    """
    chance, order = Random(seed), list(range(len(sizes)))
    chance.shuffle(order)
    if count is not None:
        more = (chance.choice(range(len(sizes))) for _ in range(count - len(order)))
        return [*order[:count], *more]
    total = sum(sizes)
    while total < asked:
        order.append(chance.choice(range(len(sizes))))
        total += sizes[order[-1]]
    return order


def drawn(pods: int, mean: float, seed: int, count: int) -> Iterator[tuple[int, float]]:
    """Draws positions of pods at random, each with how long it stays."""
    chance = Random(seed)
    for _ in range(count):
        yield chance.choice(range(pods)), chance.expovariate(1 / mean)


def mean_stay(sizes: Sequence[int], asked: float) -> float:
    """Returns how long pods stay on average, counted in pods that come, if those that are there ask for this
    many bytes.
    """
    return asked * len(sizes) / sum(sizes)

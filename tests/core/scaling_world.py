"""A queue, replicas and a controller that calls `decide` every poll: message by message, for scripted cases."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace

from cotenant.core.scaling import Decision, Memory, Sample, ScalingPolicy, State, decide


@dataclass
class Replica:
    card_at: float
    ready_at: float
    free_at: float
    told: bool = False


@dataclass
class World:
    policy: ScalingPolicy
    arrivals: Iterable[tuple[float, float]] = ()
    """(when, how long it takes) of each message."""
    cold: float = 10.0
    ready: int = 0
    cards: int | None = None
    waited: bool = False
    seen: frozenset[str] = frozenset({"arrived", "completed", "in_flight", "active"})
    """The figures that the queue tells beside its backlog."""
    now: float = 0.0
    memory: Memory = field(default_factory=Memory)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    replica_seconds: float = 0.0
    cut_off: int = 0
    """Messages whose replica was removed while it worked on them, by the idle rule."""

    def __post_init__(self) -> None:
        self.messages = sorted(self.arrivals)
        self.times = [at for at, _ in self.messages]
        self.started = 0
        self.running: list[float] = []
        self.ends: list[float] = []
        self.replicas = [Replica(0.0, 0.0, 0.0, told=True) for _ in range(self.ready)]
        self.waiting = 0

    @property
    def wanted(self) -> list[int]:
        return [decision.replicas for _, decision in self.decisions]

    @property
    def states(self) -> list[State]:
        return [decision.state for _, decision in self.decisions]

    def turns(self) -> int:
        """Changes of direction of the wanted number."""
        steps = [b - a for a, b in zip(self.wanted, self.wanted[1:], strict=False) if a != b]
        return sum((a > 0) != (b > 0) for a, b in itertools.pairwise(steps))

    def advance(self, to: float) -> None:
        slots = [(max(each.free_at, each.ready_at), number) for number, each in enumerate(self.replicas)]
        heapify(slots)
        while slots and self.started < len(self.messages):
            arrival, takes = self.messages[self.started]
            start = max(arrival, slots[0][0])
            if start > to:
                break
            first = self.replicas[slots[0][1]]
            first.free_at = start + takes
            heapreplace(slots, (first.free_at, slots[0][1]))
            self.running.append(first.free_at)
            self.ends.append(first.free_at)
            self.waits.append(start - arrival)
            self.started += 1
        self.replica_seconds += len(self.replicas) * (to - self.now)
        self.now = to

    def sample(self) -> Sample:
        now = self.now
        while self.waiting and (self.cards is None or len(self.replicas) < self.cards):
            self.waiting -= 1
            self.replicas.append(Replica(now, now + self.cold, now))
        cold = []
        for each in self.replicas:
            if each.ready_at <= now and not each.told:
                each.told = True
                cold.append(each.ready_at - each.card_at)
        arrived = bisect_right(self.times, now)
        self.running = [end for end in self.running if end > now]
        completed = self.started - len(self.running)
        poll = self.policy.poll
        told = {
            "arrived": arrived,
            "completed": completed,
            "in_flight": self.started - completed,
            "active": sum(each.free_at > max(now - poll, each.ready_at) for each in self.replicas),
        }
        return Sample(
            backlog=arrived - self.started,
            ready=sum(each.ready_at <= now for each in self.replicas),
            starting=tuple(now - each.card_at for each in self.replicas if each.ready_at > now),
            waiting=self.waiting,
            cold_starts=tuple(cold),
            room=None if self.cards is None else max(0, self.cards - len(self.replicas)),
            waited=self.waited,
            **{name: value for name, value in told.items() if name in self.seen},
        )

    def scale(self, wanted: int) -> None:
        more = wanted - len(self.replicas) - self.waiting
        for _ in range(more):
            if self.cards is None or len(self.replicas) < self.cards:
                self.replicas.append(Replica(self.now, self.now + self.cold, self.now))
            else:
                self.waiting += 1
        withdrawn = min(self.waiting, max(0, -more))
        self.waiting -= withdrawn
        order = sorted(self.replicas, key=lambda each: (each.ready_at <= self.now, each.free_at))
        for each in order[: max(0, -more - withdrawn)]:
            self.cut_off += each.free_at > self.now and wanted == 0
            self.replicas.remove(each)

    def poll(self, **changed: object) -> Decision:
        """Lets one poll interval pass, decides and scales."""
        self.advance(self.now + self.policy.poll)
        sample = replace(self.sample(), **changed)
        decision = decide(self.policy, self.memory, sample, self.now)
        self.memory = decision.memory
        self.decisions.append((self.now, decision))
        self.scale(decision.replicas)
        return decision

    def run(self, until: float) -> World:
        while self.now < until:
            self.poll()
        return self

    def late(self, target: float, after: int = 0) -> float:
        """The part of the messages, after the first some, that waited for more than the target."""
        counted = self.waits[after:]
        unstarted = len(self.messages) - self.started
        return (sum(wait > target for wait in counted) + unstarted) / max(1, len(counted) + unstarted)

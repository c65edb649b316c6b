"""Simulates one model server: a first-in first-out queue, and replicas that load, serve and drain.

Time advances only by `advance`. Between two calls nothing but known events happens, so a request's start
is the later of its arrival and the earliest moment at which a slot is free: one heap of those moments is
the whole state of the replicas. Starts beyond the moment asked for are not made, so that a decision at
that moment can still remove any slot.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappush, heapreplace
from itertools import accumulate
from math import nextafter

from cotenant.simulate.scaling.faults import Fault, Kind, at, of_kind
from cotenant.simulate.scaling.workload import Workload

NEVER = float("inf")
SHORTEST_ATTEMPT = 0.05
"""Seconds; bounds how often a poison message is tried."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the queue counts at one moment."""

    at: float
    backlog: int
    in_flight: int
    arrived: int
    completed: int
    concurrency_seconds: float
    """The integral of waiting and running requests since the begin: what an average of them is made of."""


@dataclass(slots=True)
class Replica:
    """A replica that has its GPU."""

    card_at: float
    """Before zero for those of the begin: they were started earlier, and cost from zero on."""
    ready_at: float
    announced: bool = False
    """Whether its cold start was reported."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is seen of the replicas at one moment."""

    ready: int
    starting: tuple[float, ...]
    waiting: int
    active: int
    cold_starts: tuple[float, ...]
    room: int | None


@dataclass(slots=True)
class _Poison:
    """A message that fails for ever: each time it is delivered again, before all others."""

    begin: float
    gone: float
    """When it is given up, and counts as completed."""
    attempt: float
    due: float
    """When it wants a slot next: its arrival, or the end of the attempt that runs."""


class ModelServer:
    """Serves the workload with as many replicas as `scale` last asked for."""

    def __init__(
        self,
        workload: Workload,
        replicas: int,
        cold_start: float,
        *,
        concurrency: int = 1,
        cards: int | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.now = 0.0
        self.waits = array("d")
        """Of each request that was started, in their order: seconds from arrival to start."""
        self.waiting = 0
        """Replicas without a GPU."""
        self._workload = workload
        self._cold_start = cold_start
        self._concurrency = concurrency
        self._cards = cards
        self._faults = faults
        self._arrival_sums = array("d", accumulate(workload.arrivals, initial=0.0))
        self._started = 0
        self._pending: list[float] = []
        self._ended_sum = 0.0
        self._slots: list[tuple[float, int]] = []
        self._replicas: dict[int, Replica] = {}
        self._named = 0
        self._draining: list[float] = []
        self._paid = 0.0
        self._looked_at = 0.0
        self._poisons = [
            _Poison(each.begin, each.end, max(SHORTEST_ATTEMPT, workload.mean_service), each.begin)
            for each in of_kind(faults, Kind.POISON)
        ]
        for _ in range(min(replicas, cards) if cards is not None else replicas):
            self._begin(-cold_start, ready_at=0.0)

    @property
    def replicas(self) -> int:
        """All that are wanted: with a GPU or waiting for one; those that drain do not count."""
        return len(self._replicas) + self.waiting

    @property
    def unstarted(self) -> int:
        """Requests of the workload that no replica has begun."""
        return len(self._workload.arrivals) - self._started

    def advance(self, until: float) -> None:
        """Lets time pass: GPUs are handed over, replicas become ready, requests are started."""
        self._hand_over(until)
        self._redeliver(until)
        self._serve(until)
        self.now = until

    def figures(self) -> Figures:
        """Counts the queue as it is now."""
        now = self.now
        running = [end for end in self._pending if end > now]
        self._ended_sum += sum(self._pending) - sum(running)
        self._pending = running
        arrived = bisect_right(self._workload.arrivals, now)
        completed = self._started - len(running)
        area = now * (arrived - completed) - self._arrival_sums[arrived] + self._ended_sum
        backlog, in_flight = arrived - self._started, len(running)
        for each in self._poisons:
            arrived += now >= each.begin
            completed += now >= each.gone
            in_flight += each.begin <= now < min(each.due, each.gone)
            backlog += each.due <= now < each.gone
        return Figures(now, backlog, in_flight, arrived, completed, max(0.0, area))

    def fleet(self) -> Fleet:
        """Looks at the replicas; `active` and `cold_starts` are of the time since the last look."""
        now, before = self.now, self._looked_at
        starting, cold = [], []
        for replica in self._replicas.values():
            if replica.ready_at > now:
                starting.append(now - replica.card_at)
            elif not replica.announced:
                replica.announced = True
                cold.append(replica.ready_at - replica.card_at)
        active = {
            name
            for free, name in self._slots
            if free > before and free != (ready := self._replicas[name].ready_at) and ready <= now
        }
        self._looked_at = now
        return Fleet(
            ready=len(self._replicas) - len(starting),
            starting=tuple(sorted(starting)),
            waiting=self.waiting,
            active=len(active),
            cold_starts=tuple(cold),
            room=self._room(),
        )

    def scale(self, wanted: int) -> None:
        """Adds replicas, or removes them: first those without a GPU, then the youngest that load, then idle
        ones, then those that finish soonest.
        """
        missing = wanted - self.replicas
        for _ in range(missing):
            if self._can_give(self.now):
                self._begin(self.now)
            else:
                self.waiting += 1
        withdrawn = min(self.waiting, max(0, -missing))
        self.waiting -= withdrawn
        if -missing > withdrawn:
            self._remove(-missing - withdrawn)

    def replica_seconds(self, until: float) -> float:
        """Returns what all replicas have cost: from their GPU until they were drained, or until then."""
        return self._paid + sum(_cost(each, until) for each in self._replicas.values())

    def _serve(self, until: float) -> None:
        """Starts requests up to this moment. The hot loop: about half a microsecond a request."""
        arrivals, services = self._workload.arrivals, self._workload.services
        slots, number, count = self._slots, self._started, len(arrivals)
        began, ended = self.waits.append, self._pending.append
        if not slots:
            return
        while number < count:
            arrival = arrivals[number]
            if arrival > until:
                break
            free, name = slots[0]
            start = arrival if arrival > free else free  # noqa: FURB136 -- max() takes twice as long
            if start > until:
                break
            end = start + services[number]
            heapreplace(slots, (end, name))
            began(start - arrival)
            ended(end)
            number += 1
        self._started = number

    def _redeliver(self, until: float) -> None:
        """Delivers poison messages again each time they fail, before all others."""
        while due := [each for each in self._poisons if each.due <= until and each.due < each.gone]:
            first = min(due, key=lambda each: each.due)
            self._serve(nextafter(first.due, 0))  # others may begin before it, and not with it
            free, name = self._slots[0] if self._slots else (NEVER, 0)
            if free > until:
                return
            if free >= first.gone:
                first.due = first.gone
                continue
            first.due = max(free, first.due) + first.attempt
            heapreplace(self._slots, (first.due, name))

    def _hand_over(self, until: float) -> None:
        """Gives GPUs that become free to the replicas that wait for one, in the order of time."""
        if self.waiting:
            emptied = [each.end for each in of_kind(self._faults, Kind.FULL) if self.now < each.end <= until]
            for moment in sorted([*(end for end in self._draining if end <= until), *emptied]):
                while self.waiting and self._can_give(moment):
                    self.waiting -= 1
                    self._begin(moment)
        self._draining = [end for end in self._draining if end > until]

    def _can_give(self, moment: float) -> bool:
        return not at(self._faults, Kind.FULL, moment) and (
            self._cards is None or self._free_cards(moment) > 0
        )

    def _free_cards(self, moment: float) -> int:
        held = len(self._replicas) + sum(end > moment for end in self._draining)
        return (self._cards or 0) - held

    def _room(self) -> int | None:
        if at(self._faults, Kind.FULL, self.now):
            return 0
        return None if self._cards is None else max(0, self._free_cards(self.now))

    def _begin(self, card_at: float, ready_at: float | None = None) -> None:
        """Gives a GPU to a new replica, which loads for the cold start."""
        if ready_at is None:
            ready_at = card_at + self._cold_start
            while crash := at(self._faults, Kind.CRASH_LOOP, ready_at):
                ready_at = crash.end + self._cold_start
        self._named += 1
        self._replicas[self._named] = Replica(card_at, ready_at)
        for _ in range(self._concurrency):
            heappush(self._slots, (ready_at, self._named))

    def _remove(self, count: int) -> None:
        now = self.now
        busy_until = dict.fromkeys(self._replicas, now)
        for free, name in self._slots:
            if free > busy_until[name] and self._replicas[name].ready_at <= now:
                busy_until[name] = free

        def order(name: int) -> tuple[bool, float]:
            loading = self._replicas[name].ready_at > now
            return not loading, -self._replicas[name].card_at if loading else busy_until[name]

        gone = set(sorted(self._replicas, key=order)[:count])
        for name in gone:
            replica = self._replicas.pop(name)
            self._paid += _cost(replica, busy_until[name])
            if busy_until[name] > now:
                self._draining.append(busy_until[name])
        self._slots = [slot for slot in self._slots if slot[1] not in gone]
        heapify(self._slots)


def _cost(replica: Replica, until: float) -> float:
    """Returns the seconds of a GPU from its card, or from the begin of the simulation."""
    return max(0.0, until - max(0.0, replica.card_at))

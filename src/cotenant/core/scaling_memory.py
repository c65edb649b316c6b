"""Holds all that a scaling decision remembers: bounded, and exact over JSON: a restart forgets nothing.

Its clock counts observed seconds from 0. Wall-clock time enters as differences only, so a jump moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any, Final

from cotenant.core.arrivals import MOST_PEAKS, MOST_POINTS, Arrivals, Peaks
from cotenant.core.idle import CANDIDATES, ENOUGH_GAPS, Gaps
from cotenant.core.scaling_input import LARGEST

VERSION: Final = 1
PRIOR: Final = 20.0
"""Messages that the configured processing time counts for."""
UNKNOWN: Final = -1.0
"""Stands for None in JSON: a merge patch would take null as "delete this field"."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The queue's figures as the last poll saw them."""

    backlog: float
    arrived: float | None
    completed: float | None
    in_flight: float | None


@dataclass(frozen=True, slots=True)
class Service:
    """Learns the processing time of a message: work in flight per message that completed."""

    work: float = 0.0
    """Seconds of work, older ones partly forgotten."""
    done: float = 0.0
    """Messages that this work completed."""
    prior: float = PRIOR
    """Messages for which the configured time still counts."""
    pending: float = 0.0
    """Seconds of work since the last completion. It says nothing until a message completes."""

    def seconds(self, configured: float) -> float:
        return (self.prior * configured + self.work) / (self.prior + self.done)


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a decision remembers. Times are on its own clock unless they say wall."""

    clock: float = 0.0
    """Observed seconds since the first figures."""
    wall: float | None = None
    """The wall-clock time of the last decision with figures; None: there was no such decision."""
    read: float = 0.0
    """The wall-clock time at which the last figures were read."""
    figures: Figures | None = None
    equal: int = 0
    """Polls in a row that brought the same figures while a replica was ready."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    service: Service = field(default_factory=Service)
    cold_start: float | None = None
    down: Peaks = field(default_factory=Peaks)
    clear: Peaks = field(default_factory=Peaks)
    ready: int = 0
    busy_at: float = 0.0
    """The last activity."""
    gaps: Gaps = field(default_factory=Gaps)
    queued_since: float | None = None
    """Since when messages wait, a replica is ready, and nothing completes."""
    starting_since: float | None = None
    """Since when there has always been a replica that was starting."""
    started_at: float | None = None
    """When a replica became ready last."""
    surplus_since: float | None = None
    """Since when fewer replicas are needed than there are."""

    def with_needs(self, down: Peaks, clear: Peaks, surplus_since: float | None) -> Memory:
        """Returns it with other needs. Spelled out: `dataclasses.replace` takes a tenth of a decision."""
        return Memory(
            self.clock,
            self.wall,
            self.read,
            self.figures,
            self.equal,
            self.arrivals,
            self.service,
            self.cold_start,
            down,
            clear,
            self.ready,
            self.busy_at,
            self.gaps,
            self.queued_since,
            self.starting_since,
            self.started_at,
            surplus_since,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns a plain dict of numbers and lists of numbers, always with the same keys."""
        figures = self.figures
        return {
            "version": VERSION,
            "clock": self.clock,
            "wall": [] if self.wall is None else [self.wall, self.read],
            "figures": []
            if figures is None
            else [
                figures.backlog,
                _or_unknown(figures.arrived),
                _or_unknown(figures.completed),
                _or_unknown(figures.in_flight),
            ],
            "equal": self.equal,
            "arrivalTimes": list(self.arrivals.times),
            "arrivalCounts": list(self.arrivals.counts),
            "service": [self.service.work, self.service.done, self.service.prior, self.service.pending],
            "coldStart": _or_unknown(self.cold_start),
            "downTimes": list(self.down.times),
            "downValues": list(self.down.values),
            "clearTimes": list(self.clear.times),
            "clearValues": list(self.clear.values),
            "ready": self.ready,
            "busyAt": self.busy_at,
            "gaps": [self.gaps.known, *self.gaps.costs],
            "since": [
                _or_unknown(self.queued_since),
                _or_unknown(self.starting_since),
                _or_unknown(self.started_at),
                _or_unknown(self.surplus_since),
            ],
        }

    @classmethod
    def from_json(cls, stored: object) -> Memory:
        """Reads what `to_json` wrote.

        Anything else, damaged or of another version, gives a fresh memory, which never scales down at once.
        """
        try:
            return _read(_Stored(stored))
        except _Damaged:
            return cls()


class _Damaged(Exception):
    """The stored memory is not one that `to_json` wrote."""


class _Stored:
    """Checks each value before it is used: its type, its range, and the length of a list."""

    def __init__(self, stored: object) -> None:
        if not isinstance(stored, Mapping) or stored.get("version") != VERSION:
            raise _Damaged
        self._stored = stored

    def number(self, key: str) -> float:
        return _number(self._stored.get(key))

    def optional(self, key: str) -> float | None:
        return _or_none(_number(self._stored.get(key)))

    def whole(self, key: str) -> int:
        return int(self.number(key))

    def numbers(self, key: str, most: int) -> tuple[float, ...]:
        values = self._stored.get(key)
        if not isinstance(values, list | tuple) or len(values) > most:
            raise _Damaged
        return tuple(map(_number, values))

    def times(self, key: str, most: int, clock: float) -> tuple[float, ...]:
        """Returns moments in order, the last one not after the clock."""
        values = self.numbers(key, most)
        if any(b <= a for a, b in pairwise(values)):
            raise _Damaged
        if values and (values[0] < 0 or values[-1] > clock):
            raise _Damaged
        return values


def _read(stored: _Stored) -> Memory:
    clock = stored.number("clock")
    wall, figures = stored.numbers("wall", 2), stored.numbers("figures", 4)
    arrival_times = stored.times("arrivalTimes", MOST_POINTS, clock)
    arrival_counts = stored.numbers("arrivalCounts", MOST_POINTS)
    work, done, prior, pending = _exactly(stored.numbers("service", 4), 4)
    known, *costs = _exactly(stored.numbers("gaps", 1 + len(CANDIDATES)), 1 + len(CANDIDATES))
    since = [_or_none(each) for each in _exactly(stored.numbers("since", 4), 4)]
    busy_at = stored.number("busyAt")
    bad = (
        clock < 0
        or min((work, done, prior, pending, known, *costs)) < 0
        or prior + done <= 0
        or prior > PRIOR
        or known > ENOUGH_GAPS
        or not 0 <= busy_at <= clock
        or any(each is not None and each > clock for each in since)
        or len(arrival_times) != len(arrival_counts)
        or any(b < a for a, b in pairwise(arrival_counts))
        or len(wall) not in {0, 2}
        or len(figures) not in {0, 4}
        or (figures and figures[0] < 0)
    )
    if bad:
        raise _Damaged
    return Memory(
        clock=clock,
        wall=wall[0] if wall else None,
        read=wall[1] if wall else 0.0,
        figures=Figures(figures[0], *map(_or_none, figures[1:])) if figures else None,
        equal=stored.whole("equal"),
        arrivals=Arrivals(arrival_times, arrival_counts),
        service=Service(work, done, prior, pending),
        cold_start=stored.optional("coldStart"),
        down=_peaks(stored, "down", clock),
        clear=_peaks(stored, "clear", clock),
        ready=stored.whole("ready"),
        busy_at=busy_at,
        gaps=Gaps(int(known), tuple(costs)),
        queued_since=since[0],
        starting_since=since[1],
        started_at=since[2],
        surplus_since=since[3],
    )


def _peaks(stored: _Stored, name: str, clock: float) -> Peaks:
    times = stored.times(f"{name}Times", MOST_PEAKS, clock)
    values = tuple(int(value) for value in stored.numbers(f"{name}Values", MOST_PEAKS))
    falls = all(b < a for a, b in pairwise(values))
    if len(times) != len(values) or not falls or (values and values[-1] < 0):
        raise _Damaged
    return Peaks(times, values)


def _exactly(values: tuple[float, ...], length: int) -> tuple[float, ...]:
    if len(values) != length:
        raise _Damaged
    return values


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Damaged
    if abs(value) > LARGEST or not isfinite(value):
        raise _Damaged
    return float(value)


def _or_unknown(value: float | None) -> float:
    return UNKNOWN if value is None else value


def _or_none(value: float) -> float | None:
    if value < 0 and value != UNKNOWN:
        raise _Damaged
    return None if value == UNKNOWN else value

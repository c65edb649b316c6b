"""Defines what a scaling decision is made from: the policy that a user wrote, and what one poll has seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from cotenant.core.errors import BadInput
from cotenant.core.idle import IdlePolicy

MOST_REPLICAS: Final = 1_000_000
SHORTEST: Final = 0.001
"""Seconds."""
LONGEST: Final = 30 * 86400.0
"""Seconds."""
LARGEST: Final = 1e15
"""A figure above it is cut: sums and products of such figures stay finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """What a user asks of one scaler."""

    maximum: int
    minimum: int = 0
    target: float = 5.0
    """Seconds that a message may wait for its start."""
    service: float | None = None
    """Configured processing time of one message: only a start, the measured one replaces it."""
    concurrency: int = 1
    """Messages that one replica works on at the same time."""
    poll: float = 5.0
    """Seconds between two decisions."""
    idle: IdlePolicy = field(default_factory=IdlePolicy)
    response_target: float | None = None
    """Seconds; None: `Sample.response` is ignored."""

    def __post_init__(self) -> None:
        _check("maximum", self.maximum, 1, MOST_REPLICAS, whole=True)
        _check("minimum", self.minimum, 0, self.maximum, whole=True)
        _check("concurrency", self.concurrency, 1, MOST_REPLICAS, whole=True)
        _check("target", self.target, SHORTEST, LONGEST)
        _check("poll", self.poll, SHORTEST, LONGEST)
        if self.service is not None:
            _check("service", self.service, 0, LONGEST)
        if self.response_target is not None:
            _check("response_target", self.response_target, SHORTEST, LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one poll has seen. None: not known. A figure that is not a finite number >= 0 counts as None."""

    backlog: float | None
    """Messages that wait, without those being worked on. None: no figures; the number of replicas stays."""
    arrived: float | None = None
    completed: float | None = None
    """Counters since some beginning. One that goes back was reset."""
    in_flight: float | None = None
    """Messages being worked on at this instant."""
    active: int | None = None
    """Replicas whose GPU launched something since the last poll."""
    ready: int = 0
    starting: tuple[float, ...] = ()
    """Replicas that have their GPU and are loading: the age of each since it got the GPU."""
    waiting: int = 0
    """Replicas without a GPU."""
    cold_starts: tuple[float, ...] = ()
    """Durations of the starts that ended since the last poll."""
    room: int | None = None
    """Further replicas that the ledger could place now. None: no limit is known."""
    waited: bool = False
    """A demand in the line could start with what this workload holds."""
    at: float | None = None
    """When the queue's figures were read, on the clock of `now`. None: at `now`."""
    response: float | None = None
    """Measured response time in seconds, the optional second signal."""

    @property
    def replicas(self) -> int:
        return self.ready + len(self.starting) + self.waiting

    def checked(self) -> Sample:
        """Returns it with every figure that is not a finite number >= 0 replaced by None or 0."""
        starting, cold_starts = self.starting, self.cold_starts
        return Sample(
            backlog=figure(self.backlog),
            arrived=figure(self.arrived),
            completed=figure(self.completed),
            in_flight=figure(self.in_flight),
            active=_count(self.active),
            ready=_count(self.ready) or 0,
            starting=tuple([figure(age) or 0.0 for age in starting]) if starting else (),
            waiting=_count(self.waiting) or 0,
            cold_starts=tuple([each for each in map(figure, cold_starts) if each is not None])
            if cold_starts
            else (),
            room=_count(self.room),
            waited=self.waited,
            at=self.at,
            response=figure(self.response),
        )


def figure(value: float | None) -> float | None:
    """Returns a figure that can be computed with; None if it is not a finite number >= 0."""
    if value is None or not isinstance(value, (int, float)) or not value >= 0:  # A tuple: a union is slower.
        return None
    if value > LARGEST:
        return None if value == inf else LARGEST
    return float(value)


def _count(value: float | None) -> int | None:
    if type(value) is int and 0 <= value <= MOST_REPLICAS:
        return value
    known = figure(value)
    return None if known is None else min(int(known), MOST_REPLICAS)


def _check(name: str, value: float, least: float, most: float, *, whole: bool = False) -> None:
    kind = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        a = "a whole number" if whole else "a number of seconds"
        raise BadInput(f"{name}: {value!r} is not {a} from {least:g} to {most:g}")

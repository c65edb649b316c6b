"""Runs one policy over one workload, and measures it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cotenant.simulate.scaling.faults import Fault
from cotenant.simulate.scaling.model_server import ModelServer
from cotenant.simulate.scaling.observation import Observer, Policy
from cotenant.simulate.scaling.recording import Change, Recorder, Timeline
from cotenant.simulate.scaling.workload import Workload

HOUR = 3600.0
OVERTIME = 3600.0
"""Seconds after the last arrival in which a queue may still be worked off; what is left then is late."""
PROGRESS_EVERY = 200
"""Polls between two reports of progress."""

Progress = Callable[[float], None]
"""Is called with the part of the run that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The world that a policy is tried in; times are seconds."""

    target: float = 5.0
    cold_start: float = 45.0
    minimum: int = 1
    maximum: int = 128
    concurrency: int = 1
    cards: int | None = None
    poll: float = 5.0
    staleness: float = 2.0
    missing: float = 0.01
    idle: float | Literal["auto"] | None = None
    """The threshold after which an idle model server is released; None: never."""
    seed: int = 1
    faults: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run measured."""

    requests: int
    late: int
    """Requests that waited longer than the target for their start, or never started."""
    unserved: int
    turns: int
    """Changes of direction of the wanted number."""
    hours: float
    """From the first arrival to the last start."""
    replica_hours: float
    mean_wait: float
    worst_wait: float
    p99_wait: float
    states: Mapping[str, int]
    """Decisions by the state that the policy gave with them."""
    changes: Sequence[Change] = field(repr=False)
    timeline: Timeline = field(repr=False)

    @property
    def late_percent(self) -> float:
        return 100.0 * self.late / self.requests

    @property
    def turns_per_hour(self) -> float:
        return self.turns / self.hours


def run(
    workload: Workload,
    policy: Policy,
    conditions: Conditions,
    *,
    replicas: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Replays the workload. `replicas` are ready at the begin; by default what the first minutes need."""
    began = workload.first_replicas(conditions.concurrency) if replicas is None else replicas
    wanted = max(conditions.minimum, min(conditions.maximum, began))
    server = ModelServer(
        workload,
        wanted,
        conditions.cold_start,
        concurrency=conditions.concurrency,
        cards=conditions.cards,
        faults=conditions.faults,
    )
    observer = Observer(
        server, conditions.staleness, conditions.missing, random.Random(conditions.seed), conditions.faults
    )
    horizon, number = workload.arrivals[-1], 0
    recorder = Recorder(wanted, horizon)
    while server.now < horizon or (server.unstarted and server.now < horizon + OVERTIME):
        seen = observer.poll(number * policy.period)
        answer = policy.decide(seen)
        wanted = max(conditions.minimum, min(conditions.maximum, answer.replicas))
        server.scale(wanted)
        recorder.note(seen.now, wanted, answer.state, answer.reason)
        number += 1
        if progress is not None and number % PROGRESS_EVERY == 0:
            progress(min(1.0, server.now / horizon) if horizon else 1.0)
    return _measure(workload, server, conditions.target, recorder)


def _measure(workload: Workload, server: ModelServer, target: float, recorder: Recorder) -> Outcome:
    waits, unserved = server.waits, server.unstarted
    late = sum(wait > target for wait in waits) + unserved
    ordered = sorted(waits)
    return Outcome(
        requests=len(workload.arrivals),
        late=late,
        unserved=unserved,
        turns=recorder.turns,
        hours=max(workload.duration, server.now) / HOUR,
        replica_hours=server.replica_seconds(server.now) / HOUR,
        mean_wait=sum(ordered) / len(ordered) if ordered else 0.0,
        worst_wait=ordered[-1] if ordered else 0.0,
        p99_wait=ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] if ordered else 0.0,
        states=dict(recorder.states),
        changes=recorder.changes,
        timeline=recorder.timeline(workload.arrivals, waits, target),
    )

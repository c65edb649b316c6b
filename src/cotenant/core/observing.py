"""Joins one poll of a queue with what is remembered: time that passed, arrivals, processing time, idleness.

Time comes from a wall clock. A gap that nobody observed (a clock that jumped, a server that was down) counts
as one minute: so no jump empties the memory of a need, and no jump releases a workload that was at work.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Final, NamedTuple

from cotenant.core.arrivals import Arrivals, counted, without_ripple
from cotenant.core.scaling_input import LARGEST, Sample, ScalingPolicy
from cotenant.core.scaling_memory import Figures, Memory, Service

COLD_START: Final = 60.0
"""Seconds, until the first start was seen."""
SERVICE: Final = 1.0
"""Seconds, where no processing time is configured and none is known yet."""
EQUAL_POLLS: Final = 12
"""Polls with the same figures after which a queue that is not empty is taken as stuck."""
WINDOWS: Final = (15.0, 45.0)
WINDOW: Final = 135.0
LONGEST_WINDOW: Final = 4 * 3600.0
NOISE: Final = 2.5
"""Standard deviations of a count that are taken as chance."""
_HALF_MESSAGES = 300.0
_HALF_SECONDS = 180.0
_SHORTEST_SERVICE = 1e-6
_LONGEST_SERVICE = 86400.0
_LONGEST_START = 6 * 3600.0


class Observation(NamedTuple):
    """What one poll means, with the memory that has it. A tuple: made in a tenth of a dataclass's time."""

    memory: Memory
    backlog: float
    in_flight: float | None
    arriving: bool
    """New messages came since the last figures."""
    service: float
    """Learned up to the last poll. What this one teaches depends on its backlog: used at once, more backlog
    could mean fewer replicas.
    """
    cold_start: float
    rate: float
    """Messages per second that stand out of the noise."""
    recent: float
    """Messages per second over the last cold start."""
    stalled: bool
    stuck: bool
    """The figures have not changed for many polls although there is work."""
    just_unstuck: bool
    """The backlog has risen after many equal polls: the first poll that differs takes no replica away."""
    not_starting: bool
    idle_for: float


def observe(policy: ScalingPolicy, memory: Memory, sample: Sample, now: float) -> Observation | None:
    """Returns what a checked sample means; None if it brings no new figures."""
    backlog = sample.backlog
    if backlog is None or not isfinite(now) or abs(now) > LARGEST:
        return None
    read = sample.at if sample.at is not None and isfinite(sample.at) else now
    read = max(min(read, now), -LARGEST)
    unobserved = max(60.0, 12 * policy.poll)
    if memory.wall is None or memory.figures is None:
        passed, observed = 0.0, 0.0
    elif now < memory.wall:  # The clock was set back.
        passed = observed = policy.poll
    else:
        passed = read - memory.read
        observed = min(passed, unobserved)
        if passed < 0.001:
            return None
    clock = round(memory.clock + observed, 3)
    figures = Figures(backlog, sample.arrived, sample.completed, sample.in_flight)
    same = memory.figures == figures and sample.ready > 0
    last = memory.figures or figures
    figures = Figures(
        backlog,
        without_ripple(last.arrived, figures.arrived),
        without_ripple(last.completed, figures.completed),
        figures.in_flight,
    )

    believed = service_time(policy, memory.service)
    cold_start = _cold_start(memory.cold_start, sample.cold_starts)
    arrived, completed, measured = _moved(last, figures, passed, believed)
    learned = memory.service
    if passed <= observed:  # Over a gap, work in flight is not known.
        learned = _learn(learned, policy, last, figures, sample, completed, passed, believed)
    share = observed / passed if passed > observed else 1.0
    window = min(max(WINDOW, 4 * believed), LONGEST_WINDOW)
    horizon = max(window, 30.0, cold_start)

    # One poll earlier: were this one equal too, it would be stuck, and the replicas would stay.
    was_stuck = memory.equal >= EQUAL_POLLS - 1 and sample.ready > 0 and bool(last.backlog or last.in_flight)
    equal = min(memory.equal + 1, EQUAL_POLLS) if same else 0
    work = backlog > 0 or bool(figures.in_flight)
    arrivals = memory.arrivals
    if arrived > 0 or not (
        same and work
    ):  # Else the source was not refreshed: the next figures are for both.
        arrivals = arrivals.plus(clock, arrived * share, horizon)
    queued_since = memory.queued_since
    progress = completed > 0 if completed is not None else sample.active != 0
    limit = max(60.0, 3 * believed)
    if sample.ready == 0 or (measured and progress):
        queued_since = None
    stalled = queued_since is not None and clock - queued_since >= limit
    if progress or not work:
        queued_since = None
    elif queued_since is None and backlog > 0 and sample.ready > 0:
        queued_since = clock

    known = sample.active is not None or figures.in_flight is not None
    busy = work or arrived > 0 or bool(completed) or bool(sample.active) or not known
    loading = sample.replicas > 0 and sample.ready == 0
    gaps, busy_at = memory.gaps, memory.busy_at
    if busy and busy_at < memory.clock:  # It was idle at the last poll.
        gaps = gaps.plus(clock - busy_at, cold_start)
    if busy or loading:
        busy_at = clock

    succeeded = bool(sample.cold_starts) or sample.ready > memory.ready
    started_at = clock if succeeded else memory.started_at
    starting_since = None
    not_starting = False
    if sample.starting:
        starting_since = clock if memory.starting_since is None else memory.starting_since
        longest, limit = max(*sample.starting, clock - starting_since), max(3 * cold_start, 30.0)
        not_starting = longest >= limit and (started_at is None or clock - started_at >= limit)

    return Observation(
        memory=Memory(
            clock=clock,
            wall=now,
            read=read,
            figures=figures,
            equal=equal,
            arrivals=arrivals,
            service=learned,
            cold_start=cold_start if sample.cold_starts else memory.cold_start,
            down=memory.down,
            clear=memory.clear,
            ready=sample.ready,
            busy_at=busy_at,
            gaps=gaps,
            queued_since=queued_since,
            starting_since=starting_since,
            started_at=started_at,
            surplus_since=memory.surplus_since,
        ),
        backlog=backlog,
        in_flight=figures.in_flight,
        arriving=arrived > 0,
        service=believed,
        cold_start=cold_start,
        rate=_rate(arrivals, clock, window),
        recent=arrivals.within(clock, max(30.0, cold_start)) / max(30.0, cold_start),
        stalled=stalled,
        stuck=(equal >= EQUAL_POLLS and work) or (was_stuck and backlog <= last.backlog),
        just_unstuck=was_stuck and backlog > last.backlog,
        not_starting=not_starting,
        idle_for=clock - busy_at,
    )


def _rate(arrivals: Arrivals, clock: float, longest: float) -> float:
    """Returns the messages per second that stand out of the noise over some windows."""
    known = max(arrivals.known(clock), WINDOWS[0])
    best = 0.0
    for window in WINDOWS:
        count = arrivals.within(clock, window)
        best = max(best, (count - NOISE * count**0.5) / min(window, known))
    count = arrivals.within(clock, longest)
    if known < longest / 2:
        count -= NOISE * count**0.5
    return max(best, count / min(longest, known))


def _moved(
    last: Figures, figures: Figures, passed: float, service: float
) -> tuple[float, float | None, bool]:
    """Returns the messages that arrived and that completed, and whether the latter were counted.

    A counter that is missing is rebuilt from the other and from what changed in the queue.
    """
    arrived = counted(last.arrived, figures.arrived)
    completed = counted(last.completed, figures.completed)
    in_flight = figures.in_flight
    grown = figures.backlog - last.backlog
    if in_flight is not None and last.in_flight is not None:
        grown_in_all = grown + in_flight - last.in_flight
    else:
        grown_in_all = grown
    if arrived is not None:
        if completed is not None:
            return arrived, completed, True
        return arrived, max(0.0, arrived - grown_in_all), False
    if completed is not None:
        return max(0.0, completed + grown_in_all), completed, True
    if passed <= 0:
        return 0.0, None, False
    return max(0.0, grown + (in_flight or 0.0) * passed / service), None, False


def _learn(
    learned: Service,
    policy: ScalingPolicy,
    last: Figures,
    figures: Figures,
    sample: Sample,
    completed: float | None,
    passed: float,
    believed: float,
) -> Service:
    """Learns the processing time from work in flight and completions.

    Without a figure in flight it learns only while messages wait: then all ready replicas are busy. After a
    long pause a completion stands for a minute of work or ten times the believed time: not for an hour in
    which a server hung.
    """
    if completed is None or passed <= 0:
        return learned
    if figures.in_flight is not None and last.in_flight is not None:
        working = (figures.in_flight + last.in_flight) / 2
    elif last.backlog > 0 and figures.backlog > 0 and sample.ready:
        working = float(sample.ready * policy.concurrency)
    else:
        return learned
    pending = min(learned.pending + working * passed, LARGEST)
    if completed <= 0:
        return replace(learned, pending=pending)
    kept = max(0.5 ** (completed / _HALF_MESSAGES), 0.5 ** (passed / _HALF_SECONDS))
    return Service(
        work=min(learned.work * kept + min(pending, completed * max(60.0, 10 * believed)), LARGEST),
        done=min(learned.done * kept + completed, LARGEST),
        prior=learned.prior * kept,
        pending=0.0,
    )


def service_time(policy: ScalingPolicy, learned: Service) -> float:
    configured = SERVICE if policy.service is None else policy.service
    return min(max(learned.seconds(configured), _SHORTEST_SERVICE), _LONGEST_SERVICE)


def _cold_start(known: float | None, ended: tuple[float, ...]) -> float:
    for each in ended:
        duration = min(each, _LONGEST_START)
        known = duration if known is None else 0.8 * known + 0.2 * duration
    return COLD_START if known is None else known

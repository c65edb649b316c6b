"""Decides how many replicas a model server needs, from its queue: one pure function, `decide`.

The size comes from the arrival rate; the backlog counts only as extra work that must be cleared. A rule on
the backlog alone has no resting point: with enough replicas the backlog is zero, so it removes replicas until
messages queue again. docs/scaling-policy.md explains the policy and its guarantees.

All times are seconds. `now` is wall-clock time: it may jump either way, and nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from cotenant.core.idle import IdlePolicy
from cotenant.core.observing import COLD_START, EQUAL_POLLS, Observation, observe, service_time
from cotenant.core.queueing import servers
from cotenant.core.scaling_input import Sample, ScalingPolicy
from cotenant.core.scaling_memory import Memory

__all__ = ["Decision", "IdlePolicy", "Memory", "Sample", "ScalingPolicy", "State", "decide"]

LATENESS: Final = ((0.05, 20.0), (0.01, 40.0), (0.005, 80.0))
"""To act, to size, to keep: the chance that a message is late, and what one more replica must be worth."""
GROWTH: Final = 0.045
"""By how much demand may grow during a cold start of a minute."""
UNSEEN: Final = 0.30
"""By how much the peaks may be above what a scaler has seen in its first minutes."""
HOLD: Final = 9.0
"""Cold starts. A replica that is needed again within that time was worth keeping."""
SHORTEST_HOLD: Final = 300.0
LONGEST_HOLD: Final = 1200.0
CLEAR_HOLD: Final = 120.0
"""Seconds for which the replicas that a backlog needed are kept."""
SETTLING: Final = 300.0
"""Seconds in which a new scaler never goes down, and after which a replica that waits is withdrawn."""
BAND: Final = 0.25
"""Part of the replicas: a smaller surplus stays; no more goes at once; a slow response brings as many."""
BUSY: Final = 0.5
"""The part of the replicas that must be busy for a slow response to count."""
MOST: Final = 10**9


class State(StrEnum):
    """What a scaler is doing, in one word that a user sees."""

    ACTIVE = "Active"
    SCALING_UP = "ScalingUp"
    SCALING_DOWN = "ScalingDown"
    WAITING_FOR_GPU = "WaitingForGpu"
    AT_MAXIMUM = "AtMaximum"
    IDLE = "Idle"
    WAKING = "Waking"
    NO_METRIC = "NoMetric"
    METRIC_STUCK = "MetricStuck"
    STALLED = "Stalled"
    """There is work, and nothing completes: a poison message or a server that hangs."""
    NOT_STARTING = "NotStarting"
    """Replicas start again and again, and none becomes ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many replicas, and why."""

    replicas: int
    state: State
    reason: str
    """One sentence with its figures."""
    memory: Memory
    """For the next decision. The same object if this poll brought no new figures."""
    backlog_seconds: float | None
    """How long the ready replicas (at least one) would take for the backlog. None: no figures."""
    need: int | None
    """The replicas that the load needs, before minimum, maximum and room. None: no figures."""
    service: float
    """Processing time of one message as it is now believed."""
    cold_start: float
    idle_for: float
    """Seconds since the last activity; 0 while busy."""
    idle_threshold: float | None
    """Seconds after which an idle workload is released now; None: never."""
    service_differs: bool
    """The measured processing time is more than twice, or less than half, of the configured one."""


@dataclass(frozen=True, slots=True)
class _Size:
    """How many replicas the load needs."""

    up: int
    """Fewer than this is too few."""
    need: int
    keep: int
    """More than this is too many."""
    clear: int
    slow: int
    """What a response time above its target asks for; 0: nothing."""
    queued: float
    """Seconds of one replica's work that are still queued one cold start from now."""
    memory: Memory


def decide(policy: ScalingPolicy, memory: Memory, sample: Sample, now: float) -> Decision:
    """Decides the number of replicas. Begin with `Memory()`; pass each decision's memory to the next.

    A poll without new figures (no backlog, or read no later than the last ones) changes nothing: the replicas
    stay, and the next decision is the same as without that poll.
    """
    sample = sample.checked()
    seen = observe(policy, memory, sample, now)
    if seen is None:
        return _hold(policy, memory, sample)
    size = _size(policy, sample, seen)
    threshold = policy.idle.seconds(seen.cold_start, sample.waited, seen.memory.gaps)
    replicas, state, reason = _choose(policy, sample, seen, size, threshold)
    replicas, state, reason = _within(policy, sample.replicas, replicas, state, reason)
    service, configured = seen.service, policy.service
    return Decision(
        replicas=replicas,
        state=state,
        reason=reason,
        memory=size.memory,
        backlog_seconds=_backlog_seconds(policy, sample, service),
        need=size.need,
        service=service,
        cold_start=seen.cold_start,
        idle_for=seen.idle_for,
        idle_threshold=threshold,
        service_differs=configured is not None and not configured / 2 <= service <= configured * 2,
    )


def _size(policy: ScalingPolicy, sample: Sample, seen: Observation) -> _Size:
    service, cold, slots = seen.service, seen.cold_start, policy.concurrency
    clock = seen.memory.clock
    hold = min(max(HOLD * cold, SHORTEST_HOLD), LONGEST_HOLD)
    load = seen.rate * service
    if seen.in_flight is not None:
        load = min(load, seen.backlog + seen.in_flight + seen.rate * cold)
    load *= 1 + GROWTH * (cold / 60) ** 0.5
    load *= 1 + UNSEEN * max(0.0, 1 - clock / hold)
    limit = (max(policy.maximum, sample.replicas) + 1) * slots
    up, to, down = (ceil(n / slots) for n in servers(load, policy.target / service, LATENESS, limit))

    pace = seen.recent * service / slots
    queued = _queued(seen.backlog * service / slots, pace, sample, cold)
    clear = min(ceil(pace + queued / (policy.target + 0.2 * cold)), MOST) if queued > 0 else 0
    slow = _slow(policy, sample, load / slots)
    need = max(to, clear, slow, 1)
    downs = seen.memory.down.plus(clock, max(down, slow), hold)
    clears = seen.memory.clear.plus(clock, clear, CLEAR_HOLD)
    surplus = seen.memory.surplus_since
    if need >= sample.replicas:
        surplus = None
    elif surplus is None:
        surplus = clock
    return _Size(
        up=max(up, clear, slow),
        need=need,
        keep=max(downs.largest, clears.largest, 1),
        clear=clear,
        slow=slow,
        queued=queued,
        memory=seen.memory.with_needs(downs, clears, surplus),
    )


def _slow(policy: ScalingPolicy, sample: Sample, busy: float) -> int:
    """Returns the replicas that a response time above its target asks for: a quarter more, at least one.

    One step at a time, since a measured time falls only after the last step has had its effect. And only
    while half of the replicas are busy: else the time is spent elsewhere, and no replica would help.
    """
    target, response = policy.response_target, sample.response
    if target is None or response is None or response <= target:
        return 0
    if not sample.ready or sample.starting or sample.waiting or busy < BUSY * sample.ready:
        return 0
    return sample.ready + max(1, int(sample.ready * BAND))


def _queued(work: float, pace: float, sample: Sample, cold: float) -> float:
    """Returns the work still queued one cold start from now: a second brings `pace`, a replica does 1."""
    at, ready = 0.0, sample.ready
    for start in sorted(max(0.0, cold - age) for age in sample.starting):
        work = max(0.0, work + (pace - ready) * (start - at))
        at, ready = start, ready + 1
    return max(0.0, work + (pace - ready) * (cold - at))


def _choose(
    policy: ScalingPolicy, sample: Sample, seen: Observation, size: _Size, threshold: float | None
) -> tuple[int, State, str]:
    """Chooses the number of replicas, in the order in which the reasons count."""
    now = sample.replicas
    load = f"{_rate(seen.rate)} of {_seconds(seen.service)} each, {_messages(seen.backlog)} waiting"
    if size.slow and sample.response is not None and policy.response_target is not None:
        load += (
            f", answered in {_seconds(sample.response)} (the target is {_seconds(policy.response_target)})"
        )
    if now == 0:
        if seen.backlog > 0 or seen.arriving or seen.in_flight:
            want = max(1, min(size.need, _cap(policy, sample)))
            return want, State.WAKING, f"{load}: waking {_replicas(want)}"
        return 0, State.IDLE, "nothing waits and nothing arrives: 0 replicas until a message comes"

    stalled = seen.stalled
    if seen.stuck:
        if sample.active != 0:
            return (
                now,
                State.METRIC_STUCK,
                (
                    f"the queue's figures have not changed for {EQUAL_POLLS} polls although there is work "
                    f"({_messages(seen.backlog)} waiting): the metric is stuck or one message takes long; "
                    f"keeping {_replicas(now)}"
                ),
            )
        stalled = True
    stall = f"{load}, and nothing completes: a poison message or a server that hangs"
    # What is remembered of the load is no reason to scale up while nothing comes: an idle workload that was
    # just released to its minimum would come back at the next poll.
    if size.up > now and seen.idle_for <= 0:
        if stalled:
            return now, State.STALLED, f"{stall}; no further replica would help"
        if seen.not_starting:
            return now, State.NOT_STARTING, _not_starting(sample, seen)
        want = max(now, min(size.need, _cap(policy, sample)))
        if want > now:
            return want, State.SCALING_UP, f"{load}: {_replicas(size.need)} needed, scaling {now} to {want}"
        if now >= policy.maximum:
            return now, State.AT_MAXIMUM, f"{load}: {_replicas(size.need)} needed, the maximum is {now}"
        return now, State.WAITING_FOR_GPU, _waiting(sample, size.need)
    if threshold is not None and seen.idle_for >= threshold and sample.ready > 0:
        others = " while others wait" if sample.waited else ""
        reason = f"idle for {_seconds(seen.idle_for)}, the threshold is {_seconds(threshold)}{others}"
        spare = max(0, now - policy.minimum)
        then = f"releasing {_replicas(spare)}" if spare else f"keeping {_replicas(now)}"
        return policy.minimum, State.IDLE, f"{reason}: {then}"
    surplus = size.memory.surplus_since
    useless = surplus is not None and size.memory.clock - surplus >= SETTLING and not seen.just_unstuck
    least = max(policy.minimum, 1)
    if sample.waiting and useless and now > least:
        want = max(size.need, now - sample.waiting, least)
        reason = f"{load}: {_replicas(size.need)} needed for {_seconds(SETTLING)}"
        return want, State.SCALING_DOWN, f"{reason}, withdrawing {now - want} that wait for a GPU"
    settled = size.memory.clock >= SETTLING and (size.queued <= 0 or stalled) and not seen.just_unstuck
    if settled and now - size.keep > now * BAND and now > least:
        want = max(size.keep, min(now - 1, ceil(now * (1 - BAND))), least)
        reason = f"{load}: at most {_replicas(size.keep)} needed lately"
        return want, State.SCALING_DOWN, f"{reason}, scaling {now} to {want}"
    if stalled:
        return now, State.STALLED, f"{stall}; keeping {_replicas(now)}"
    if seen.not_starting:
        return now, State.NOT_STARTING, _not_starting(sample, seen)
    if sample.waiting:
        return now, State.WAITING_FOR_GPU, _waiting(sample, size.need)
    if sample.ready == 0:
        return (
            now,
            State.WAKING,
            f"{load}: {_replicas(now)} loading, a start takes {_seconds(seen.cold_start)}",
        )
    return now, State.ACTIVE, f"{load}: keeping {_replicas(now)}"


def _cap(policy: ScalingPolicy, sample: Sample) -> int:
    """Returns how many replicas may be asked for: those that fit, and at most one in line without a GPU."""
    if sample.room is None:
        return policy.maximum
    return min(policy.maximum, sample.ready + len(sample.starting) + max(1, sample.room))


def _within(
    policy: ScalingPolicy, now: int, replicas: int, state: State, reason: str
) -> tuple[int, State, str]:
    """Keeps the result within minimum and maximum; to 0 only from 0 or by the idle rule."""
    least = policy.minimum if state is State.IDLE or now == 0 else max(policy.minimum, 1)
    if replicas < least:
        up = State.SCALING_UP if least > now else state
        return least, up, f"{reason}; the minimum is {policy.minimum}"
    if replicas > policy.maximum:
        down = State.SCALING_DOWN if policy.maximum < now else State.AT_MAXIMUM
        return policy.maximum, down, f"{reason}; the maximum is {policy.maximum}"
    return replicas, state, reason


def _hold(policy: ScalingPolicy, memory: Memory, sample: Sample) -> Decision:
    now = sample.replicas
    what = "no figures of the queue" if sample.backlog is None else "no newer figures of the queue"
    service = service_time(policy, memory.service)
    replicas, state, reason = _within(policy, now, now, State.NO_METRIC, f"{what}: keeping {_replicas(now)}")
    cold = COLD_START if memory.cold_start is None else memory.cold_start
    return Decision(
        replicas=replicas,
        state=state,
        reason=reason,
        memory=memory,
        backlog_seconds=None,
        need=None,
        service=service,
        cold_start=cold,
        idle_for=memory.clock - memory.busy_at,
        idle_threshold=policy.idle.seconds(cold, sample.waited, memory.gaps),
        service_differs=False,
    )


def _backlog_seconds(policy: ScalingPolicy, sample: Sample, service: float) -> float:
    return (sample.backlog or 0.0) * service / (policy.concurrency * max(1, sample.ready))


def _not_starting(sample: Sample, seen: Observation) -> str:
    oldest = max(sample.starting, default=0.0)
    return (
        f"{_replicas(len(sample.starting))} starting, the oldest for {_seconds(oldest)}, and none becomes "
        f"ready; a start takes {_seconds(seen.cold_start)}: look at their logs; no further replica is started"
    )


def _waiting(sample: Sample, need: int) -> str:
    have = f"{sample.ready} ready, {len(sample.starting)} loading"
    return f"{_replicas(need)} needed: {have}, {sample.waiting} waiting for a GPU"


def _rate(rate: float) -> str:
    return f"{rate:.3g} messages/s"


def _messages(count: float) -> str:
    return f"{count:.0f} messages" if count != 1 else "1 message"


def _replicas(count: int) -> str:
    return f"{count} replicas" if count != 1 else "1 replica"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"

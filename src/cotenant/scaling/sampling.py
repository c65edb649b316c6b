"""Reads the signals of one scaler and joins them with its replicas into the sample that a decision needs.

*No sample* and *no traffic* are different things. A queue that answers 0 is empty. A queue that does not
answer gives a sample without backlog, and the number of replicas stays. A processing time or a response time
that cannot be read leaves the decision to the other figures.

A Redis list tells nothing while workers keep up: then the messages in work are a second sample. Where the
specification says `slots`, it is the replicas at work at this instant. If nobody knows whether they work, and
nothing waits, there is no sample; if something waits, every replica counts as busy, as its worker would be.

A response time above its target asks for one step more replicas (`core/scaling.py`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from cotenant.core.errors import CotenantError
from cotenant.core.scaling_input import Sample, ScalingPolicy
from cotenant.scaling.specification import PROCESSING, ScalerSpec
from cotenant.signals.opening import open_query, open_signal
from cotenant.signals.servers import Servers
from cotenant.signals.signal import NoSample, Query, Reading, Secrets

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SIGNAL_FAILED = "SignalFailed"
NO_SAMPLE = "NoSample"


@dataclass(frozen=True, slots=True)
class Failure:
    """A signal that gave no figure."""

    reason: str
    """SignalFailed or NoSample."""
    message: str
    """Which signal it was, what came back, and what to do."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What the signals of one scaler said at one poll."""

    queue: Reading | None = None
    processing: float | None = None
    response: float | None = None
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The replicas of one scaler at one poll: see `core.scaling.Sample` for each figure."""

    ready: int = 0
    starting: tuple[float, ...] = ()
    waiting: int = 0
    cold_starts: tuple[float, ...] = ()
    active: int | None = None
    at_work: int | None = None
    """Replicas that use their GPU at this instant. None: nobody knows."""
    room: int | None = None
    waited: bool = False


class Sources:
    """The signals of one specification. Nothing is connected before the first read."""

    def __init__(self, spec: ScalerSpec, secrets: Secrets, servers: Servers) -> None:
        processing, response = spec.backlog.processing_time, spec.response_time
        self._queue = open_signal(spec.backlog.queue, secrets, servers)
        self._processing: Query | None = None
        if processing is not None and processing.query is not None:
            self._processing = open_query(processing.query, secrets, servers)
        self._response = None if response is None else open_query(response.query, secrets, servers)

    async def read(self, within: float) -> Readings:
        """Reads all at once, each for at most `within` seconds. What fails is named; the rest counts."""
        failures: list[Failure] = []
        queue, processing, response = await asyncio.gather(
            _tried("queue", self._queue, within, failures),
            _tried("processingTime", self._processing, within, failures),
            _tried("responseTime", self._response, within, failures),
        )
        if processing is not None and processing > PROCESSING.most:
            why = f"processingTime: {processing:.6g} s is not {PROCESSING}: does its query answer in seconds?"
            failures.append(Failure(SIGNAL_FAILED, why))
            processing = None
        if queue is not None and queue.backlog is None:
            failures.insert(0, Failure(NO_SAMPLE, "queue: it told no depth"))
        return Readings(queue, processing, response, tuple(failures))

    async def close(self) -> None:
        for each in (self._queue, self._processing, self._response):
            if each is not None:
                await each.close()


class _Readable(Protocol[T_co]):
    async def read(self) -> T_co: ...


async def _tried(what: str, signal: _Readable[T] | None, within: float, failures: list[Failure]) -> T | None:
    if signal is None:
        return None
    try:
        async with asyncio.timeout(within):
            return await signal.read()
    except NoSample as error:
        failures.append(Failure(NO_SAMPLE, f"{what}: {_written(error)}"))
    except CotenantError as error:
        failures.append(Failure(SIGNAL_FAILED, f"{what}: {_written(error)}"))
    except TimeoutError:
        failures.append(Failure(SIGNAL_FAILED, f"{what}: no answer within {within:.1f} s"))
    except Exception as error:  # noqa: BLE001 - whatever one server answers, the other scalers go on
        # Only its kind: the words of an error that nobody thought of may hold a credential.
        failures.append(Failure(SIGNAL_FAILED, f"{what}: it cannot be read ({type(error).__name__})"))
    return None


def _written(error: CotenantError) -> str:
    """Returns an error as it can be stored: JSON of others may have halves of characters in it."""
    return str(error).encode(errors="replace").decode()


def policy_of(spec: ScalerSpec, readings: Readings, poll: float) -> ScalingPolicy:
    """Returns the policy of this poll: a processing time that was asked for counts as a configured one."""
    policy, seconds = spec.policy(poll), readings.processing
    if seconds is None or not 0 < seconds <= PROCESSING.most:
        return policy
    return replace(policy, service=seconds)


def sample_of(spec: ScalerSpec, readings: Readings, counted: Counted, now: float, wall: float) -> Sample:
    """Joins readings and replicas. `now` is the clock of decisions, `wall` the machine's at that instant."""
    queue = readings.queue if readings.queue is not None else Reading(wall)
    backlog, in_flight = queue.backlog, queue.in_flight
    second = spec.backlog.queue.in_flight
    if second is not None and second.slots and backlog is not None:
        if counted.at_work is not None:
            in_flight = float(counted.at_work)
        elif backlog > 0 or not counted.ready:
            in_flight = float(counted.ready)
        else:
            backlog = None
    return Sample(
        backlog=backlog,
        arrived=queue.arrived,
        completed=queue.completed,
        in_flight=in_flight,
        active=counted.active,
        ready=counted.ready,
        starting=counted.starting,
        waiting=counted.waiting,
        cold_starts=counted.cold_starts,
        room=counted.room,
        waited=counted.waited,
        at=now - max(0.0, wall - queue.at),
        response=readings.response,
    )

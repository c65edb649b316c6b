"""Readings of queue, processing time and response time, and the replicas, become one sample."""

import asyncio
from math import inf, nan
from typing import Any

import msgspec
import pytest

from cotenant.core.scaling import Memory, State, decide
from cotenant.scaling.reading import read_specification
from cotenant.scaling.sampling import Counted, Failure, Readings, Sources, policy_of, sample_of
from cotenant.scaling.specification import ScalerSpec
from cotenant.signals.servers import Servers
from cotenant.signals.signal import NoSample, Reading, SignalError

LIST = {"redis": {"url": "redis://queue:6379", "list": "jobs"}, "inFlight": {"slots": True}}
WITH_LIST = {**LIST, "inFlight": {"list": "working"}}
QUERY = {"prometheus": {"url": "http://prometheus:9090", "query": "x"}}


def spec(queue: Any = LIST, **backlog: Any) -> ScalerSpec:
    data = {"replicas": {"max": 8}, "backlog": {"queue": queue, **backlog}, "scaleDownThreshold": "15m"}
    return read_specification(ScalerSpec, data)


def read(backlog: float | None, in_flight: float | None = None, at: float = 100.0) -> Readings:
    return Readings(Reading(at, backlog=backlog, in_flight=in_flight))


class TestSample:
    def test_all_figures_are_handed_on(self):
        readings = Readings(Reading(98.0, backlog=4, arrived=10, completed=5, in_flight=1), 0.7, 1.5)
        counted = Counted(
            ready=2, starting=(3.0,), waiting=1, cold_starts=(40.0,), active=1, at_work=2, room=3, waited=True
        )
        sample = sample_of(spec(WITH_LIST), readings, counted, now=500.0, wall=100.0)
        assert (sample.backlog, sample.arrived, sample.completed, sample.in_flight) == (4, 10, 5, 1)
        assert (sample.ready, sample.starting, sample.waiting, sample.cold_starts) == (2, (3.0,), 1, (40.0,))
        assert (sample.active, sample.room, sample.waited, sample.response) == (1, 3, True, 1.5)
        assert sample.at == 498.0

    def test_a_queue_that_is_empty_is_a_sample(self):
        sample = sample_of(spec(WITH_LIST), read(0, 0), Counted(ready=1), 100.0, 100.0)
        assert (sample.backlog, sample.in_flight) == (0, 0)

    def test_a_queue_that_did_not_answer_is_none_and_everything_stays(self):
        chosen, counted = spec(WITH_LIST), Counted(ready=3, at_work=3)
        sample = sample_of(chosen, Readings(), counted, 100.0, 100.0)
        assert sample.backlog is None
        decision = decide(policy_of(chosen, Readings(), 5.0), Memory(), sample, 100.0)
        assert (decision.replicas, decision.state) == (3, State.NO_METRIC)

    def test_a_clock_that_was_set_back_makes_no_figure_of_the_future(self):
        assert sample_of(spec(), read(1, at=9999.0), Counted(), 100.0, 100.0).at == 100.0


class TestSecondSampleBySlots:
    def test_replicas_at_work_are_messages_in_work(self):
        sample = sample_of(spec(), read(0), Counted(ready=3, at_work=2), 100.0, 100.0)
        assert (sample.backlog, sample.in_flight) == (0, 2)

    def test_only_where_the_specification_says_so(self):
        sample = sample_of(spec(WITH_LIST), read(0, 1), Counted(ready=3, at_work=2), 100.0, 100.0)
        assert sample.in_flight == 1

    def test_an_empty_list_and_replicas_of_which_nobody_knows_are_no_sample(self):
        assert sample_of(spec(), read(0), Counted(ready=3), 100.0, 100.0).backlog is None

    def test_a_list_that_grows_is_one_and_every_replica_counts_as_busy(self):
        sample = sample_of(spec(), read(7), Counted(ready=3), 100.0, 100.0)
        assert (sample.backlog, sample.in_flight) == (7, 3)

    def test_without_replicas_nothing_is_in_work(self):
        sample = sample_of(spec(), read(0), Counted(), 100.0, 100.0)
        assert (sample.backlog, sample.in_flight) == (0, 0)


class TestPolicy:
    def test_a_processing_time_that_was_asked_for_counts_as_a_configured_one(self):
        assert policy_of(spec(processingTime={"query": QUERY}), Readings(processing=0.7), 5.0).service == 0.7

    @pytest.mark.parametrize("answer", [None, 0.0, -1.0, nan, inf, 8e8])
    def test_one_that_cannot_be_is_learned_instead(self, answer: float | None):
        asked = spec(processingTime={"query": QUERY})
        assert policy_of(asked, Readings(processing=answer), 5.0).service is None

    def test_a_fixed_one_stays(self):
        assert policy_of(spec(processingTime={"fixed": "800ms"}), Readings(), 2.0).service == 0.8


class Answering:
    """A signal that answers, fails, or never answers."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.closed = False

    async def read(self) -> Any:
        if self.answer is None:
            await asyncio.sleep(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True


def sources(queue: Any, processing: Any, response: Any) -> Sources:
    async def no_secret(name: str, key: str) -> str:
        raise AssertionError(name, key)

    made = Sources(spec(WITH_LIST), no_secret, Servers())
    made._queue, made._processing, made._response = map(Answering, (queue, processing, response))
    return made


@pytest.mark.asyncio
async def test_signals_are_read_side_by_side():
    queue = Reading(1.0, backlog=3)
    assert await sources(queue, 0.5, 2.0).read(5.0) == Readings(queue, 0.5, 2.0)


@pytest.mark.asyncio
async def test_what_fails_is_named_and_the_rest_counts():
    read = await sources(SignalError("wrong password"), NoSample("no series"), 2.0).read(5.0)
    assert read == Readings(
        None,
        None,
        2.0,
        (Failure("SignalFailed", "queue: wrong password"), Failure("NoSample", "processingTime: no series")),
    )


@pytest.mark.asyncio
async def test_one_that_never_answers_does_not_hold_the_others():
    queue = Reading(1.0, backlog=3)
    read = await sources(queue, None, 2.0).read(0.05)
    assert (read.queue, read.response) == (queue, 2.0)
    assert read.failures == (Failure("SignalFailed", "processingTime: no answer within 0.1 s"),)


@pytest.mark.asyncio
async def test_an_error_that_nobody_thought_of_is_a_failed_signal_without_its_words():
    read = await sources(TypeError("Bearer hunter2"), 0.5, 2.0).read(5.0)
    assert (read.queue, read.processing, read.response) == (None, 0.5, 2.0)
    assert read.failures == (Failure("SignalFailed", "queue: it cannot be read (TypeError)"),)


@pytest.mark.asyncio
async def test_what_is_said_can_be_written_into_a_status():
    (failure,) = (await sources(SignalError("it is an object with \ud800"), 0.5, 2.0).read(5.0)).failures
    assert msgspec.json.encode(failure.message) == b'"queue: it is an object with ?"'


@pytest.mark.asyncio
async def test_a_processing_time_in_nanoseconds_is_named_and_not_used():
    read = await sources(Reading(1.0, backlog=3), 8e8, 2.0).read(5.0)
    assert (read.queue, read.processing) == (Reading(1.0, backlog=3), None)
    assert read.failures == (
        Failure(
            "SignalFailed",
            "processingTime: 8e+08 s is not from 1ms to 24h: does its query answer in seconds?",
        ),
    )


@pytest.mark.asyncio
async def test_a_queue_without_depth_is_no_sample():
    read = await sources(Reading(1.0), 0.5, 2.0).read(5.0)
    assert read.failures == (Failure("NoSample", "queue: it told no depth"),)


@pytest.mark.asyncio
async def test_all_are_closed():
    made = sources(Reading(1.0), 0.5, 2.0)
    await made.close()
    assert all(each.closed for each in (made._queue, made._processing, made._response))

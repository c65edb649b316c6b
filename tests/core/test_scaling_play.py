"""Scaling: what holds for any play of figures and replicas, with hypothesis."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, nan

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.core.idle import IdlePolicy
from cotenant.core.scaling import Decision, Memory, Sample, ScalingPolicy, State, decide

policies = st.builds(
    ScalingPolicy,
    minimum=st.sampled_from([0, 0, 1, 3]),
    maximum=st.sampled_from([3, 8, 40, 1000]),
    target=st.sampled_from([0.5, 3.0, 5.0, 60.0]),
    response_target=st.sampled_from([None, None, 1.0]),
    service=st.sampled_from([None, 0.0, 0.001, 0.1, 0.8, 5.0, 60.0, 3600.0]),
    concurrency=st.sampled_from([1, 1, 4, 64]),
    poll=st.sampled_from([2.0, 5.0, 30.0]),
    idle=st.sampled_from([IdlePolicy(), IdlePolicy(60.0), IdlePolicy(600.0), IdlePolicy("auto")]),
)
seeds = st.integers(0, 2**32)
plays = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Play:
    """A world that is roughly possible: work comes in phases, replicas follow with delays, cards are few.

    For some polls figures are stuck, replicas hang or crash while they start, or no GPU is free.
    """

    policy: ScalingPolicy
    seed: int
    now: float = 1e9

    def samples(self) -> Iterator[tuple[Sample, float]]:
        """Yields a sample and its time; `follow` must be called with each decision before the next."""
        chance, policy = random.Random(self.seed), self.policy
        takes = chance.choice([0.01, 0.1, 0.8, 5.0, 60.0])
        cold = chance.choice([1.0, 10.0, 45.0, 180.0])
        cards = chance.choice([None, None, 2, 10])
        counters = chance.choice(["both", "arrived", "completed", "neither"])
        has_in_flight, has_active = counters == "neither" or chance.random() < 0.7, chance.random() < 0.8
        arrived, completed, backlog, in_flight, base = 1000.0, 1000.0, 0.0, 0.0, 0.0
        self.ready, self.starting, self.waiting, rate = chance.choice([0, 1, 5]), list[float](), 0, 0.0
        faults, often = (
            dict.fromkeys(("stuck", "hang", "crash", "full"), 0),
            chance.choice([0, 0, 0.01, 0.03]),
        )
        seen: dict[str, float] = {}
        while True:
            for fault in faults:
                begins = chance.random() < often
                faults[fault] = chance.randint(3, 60) if begins else max(0, faults[fault] - 1)
            if chance.random() < 0.05:
                rate = chance.choice([0, 0, 0.05, 1, 10, 200]) / max(takes, 0.1)
            passed = policy.poll * chance.choice([1, 1, 1, 1, 1.2, 2])
            self.now += passed
            self.starting = [age + passed for age in self.starting]
            ended = [] if faults["crash"] else [age for age in self.starting if age >= cold]
            self.starting = [age for age in self.starting if age < cold or faults["crash"]]
            self.ready += len(ended)
            free = inf if cards is None else max(0, cards - self.ready - len(self.starting))
            free = 0 if faults["full"] else free
            while self.waiting and free > 0:
                self.waiting, free = self.waiting - 1, free - 1
                self.starting.append(0.0)
            new = float(int(rate * passed * chance.uniform(0.5, 1.5)))
            slots = self.ready * policy.concurrency
            done = min(backlog + in_flight + new, float(int(slots * passed / takes)))
            done = 0.0 if faults["hang"] else done
            arrived, completed = arrived + new, completed + done
            left = backlog + in_flight + new - done
            in_flight = min(left, float(slots))
            backlog = left - in_flight
            if chance.random() < 0.01:
                base = arrived
            room = None if free == inf else int(free)
            if not (seen and faults["stuck"]):
                seen = {"backlog": backlog}
                if counters in {"both", "arrived"}:
                    seen["arrived"] = max(0.0, arrived - base)
                if counters in {"both", "completed"}:
                    seen["completed"] = max(0.0, completed - base)
                if has_in_flight:
                    seen["in_flight"] = in_flight
            yield (
                Sample(
                    **seen,
                    active=min(self.ready, int(in_flight) + (done > 0)) if has_active else None,
                    ready=self.ready,
                    starting=tuple(self.starting),
                    waiting=self.waiting,
                    cold_starts=tuple(ended),
                    room=room,
                    waited=chance.random() < 0.1,
                    response=chance.choice([None, 0.5, 0.9, 1.5, 4.0]),
                ),
                self.now,
            )
            self._follow(room)

    wanted: int = 0

    def _follow(self, room: int | None) -> None:
        more = self.wanted - self.ready - len(self.starting) - self.waiting
        placed = more if room is None else min(more, room)
        self.starting += [0.0] * max(0, placed)
        self.waiting += max(0, more - max(0, placed))
        for _ in range(max(0, -more)):
            if self.waiting:
                self.waiting -= 1
            elif self.starting:
                self.starting.pop()
            else:
                self.ready -= 1

    def run(self, polls: int) -> Iterator[tuple[Memory, Sample, float, Decision]]:
        """Yields each decision with what it was made from."""
        memory, coming = Memory(), self.samples()
        for _ in range(polls):
            sample, now = next(coming)
            decision = decide(self.policy, memory, sample, now)
            yield memory, sample, now, decision
            memory, self.wanted = decision.memory, decision.replicas


@given(policies, seeds)
@plays
def test_the_result_is_within_its_limits_and_zero_only_by_the_idle_rule(
    policy: ScalingPolicy, seed: int
) -> None:
    for memory, sample, _, decision in Play(policy, seed).run(80):
        assert policy.minimum <= decision.replicas <= policy.maximum
        if decision.replicas == 0:
            assert decision.state in {State.IDLE, State.NO_METRIC}
        if sample.replicas == 0 and (sample.backlog or sample.in_flight):
            assert decision.replicas >= 1
        last = memory.figures
        counted = sample.arrived is not None and last is not None and last.arrived is not None
        if sample.replicas == 0 and counted and sample.arrived > last.arrived:
            assert decision.replicas >= 1


@given(policies, seeds, st.integers(1, 79), st.sampled_from(["missing", "repeated", "older", "nan"]))
@plays
def test_a_poll_without_new_figures_keeps_the_replicas_and_is_forgotten(
    policy: ScalingPolicy, seed: int, number: int, kind: str
) -> None:
    for at, (memory, sample, now, decision) in enumerate(Play(policy, seed).run(80)):
        if at != number:
            continue
        changed = {
            "missing": {"backlog": None},
            "repeated": {"at": memory.read, "backlog": 1e6},
            "older": {"at": memory.read - 1, "backlog": 1e6},
            "nan": {"backlog": nan},
        }[kind]
        held = decide(policy, memory, replace(sample, **changed), now - policy.poll / 2)
        assert held.replicas == min(max(sample.replicas, policy.minimum), policy.maximum)
        assert held.state in {State.NO_METRIC, State.SCALING_UP, State.SCALING_DOWN}
        assert decide(policy, held.memory, sample, now) == decision


@given(policies, seeds, st.sampled_from([1, 3, 50, 10_000]))
@plays
def test_more_backlog_never_means_fewer_replicas(policy: ScalingPolicy, seed: int, more: int) -> None:
    for memory, sample, now, decision in Play(policy, seed).run(80):
        assert sample.backlog is not None
        with_more = decide(policy, memory, replace(sample, backlog=sample.backlog + more), now)
        assert with_more.replicas >= decision.replicas, (decision.reason, with_more.reason)


@given(policies, seeds)
@plays
def test_no_step_down_follows_a_step_up_within_two_minutes(policy: ScalingPolicy, seed: int) -> None:
    rose = -inf
    for _, sample, now, decision in Play(policy, seed).run(150):
        if decision.replicas > sample.replicas:
            rose = now
        if decision.replicas < sample.replicas <= policy.maximum and decision.state is not State.IDLE:
            assert now - rose > 120


@given(policies, seeds)
@plays
def test_what_a_rate_needed_is_kept_for_five_minutes(policy: ScalingPolicy, seed: int) -> None:
    rose, size = -inf, 0
    for _, sample, now, decision in Play(policy, seed).run(150):
        if decision.replicas > sample.replicas and not decision.memory.clear.largest:
            rose, size = now, decision.replicas
        if decision.replicas < sample.replicas and decision.state is not State.IDLE and now - rose < 299:
            assert decision.replicas >= min(size, policy.maximum)


@given(policies, seeds)
@plays
def test_a_state_that_says_the_number_changes_is_true(policy: ScalingPolicy, seed: int) -> None:
    for _, sample, _, decision in Play(policy, seed).run(100):
        if decision.state is State.SCALING_UP:
            assert decision.replicas > sample.replicas, decision.reason
        if decision.state is State.SCALING_DOWN:
            assert decision.replicas < sample.replicas, decision.reason


@given(policies, seeds)
@plays
def test_at_most_one_replica_is_asked_for_beyond_the_room(policy: ScalingPolicy, seed: int) -> None:
    for _, sample, _, decision in Play(policy, seed).run(100):
        if sample.room is not None and decision.replicas > max(sample.replicas, policy.minimum):
            placed = sample.ready + len(sample.starting)
            assert decision.replicas <= placed + max(1, sample.room)


@given(policies, seeds)
@plays
def test_a_new_scaler_never_goes_down_in_its_first_five_minutes(policy: ScalingPolicy, seed: int) -> None:
    play = Play(policy, seed)
    began = play.now
    for _, sample, now, decision in play.run(60):
        if now - began < 300 and decision.state is not State.IDLE:
            assert decision.replicas >= min(sample.replicas, policy.maximum)


@given(policies, seeds)
@plays
def test_a_restart_changes_no_decision(policy: ScalingPolicy, seed: int) -> None:
    stored = Memory()
    for memory, sample, now, decision in Play(policy, seed).run(120):
        assert stored == memory
        again = decide(policy, stored, sample, now)
        assert again == decision
        text = json.dumps(again.memory.to_json(), allow_nan=False)
        assert len(text) < 12 * 1024
        stored = Memory.from_json(json.loads(text))


wild = st.one_of(
    st.none(),
    st.sampled_from([nan, inf, -inf, -1.0, 0.0, -0.0, 1e-300, 1e300, 2.0**70]),
    st.floats(),
    st.integers(-(10**20), 10**20),
)
counts = st.one_of(st.integers(-2, 50), st.sampled_from([10**30, -(10**30)]))
wild_samples = st.builds(
    Sample,
    backlog=wild,
    arrived=wild,
    completed=wild,
    in_flight=wild,
    active=st.one_of(st.none(), counts),
    ready=counts,
    starting=st.lists(st.one_of(st.floats(), st.floats(0, 500)), max_size=5).map(tuple),
    waiting=counts,
    cold_starts=st.lists(st.floats(), max_size=3).map(tuple),
    room=st.one_of(st.none(), counts),
    waited=st.booleans(),
    at=st.one_of(st.none(), st.floats()),
    response=st.one_of(st.none(), st.floats()),
)
steps = st.one_of(st.just(5.0), st.sampled_from([0.0, 1e-9, -5.0, 1e6, -1e6, nan, inf, 1e300]))


@given(policies, st.lists(st.tuples(wild_samples, steps), max_size=25))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_comes_there_is_a_result_and_a_memory_that_can_be_stored(
    policy: ScalingPolicy, polls: list[tuple[Sample, float]]
) -> None:
    memory, now = Memory(), 1e9
    for sample, step in polls:
        decision = decide(policy, memory, sample, now + step)
        assert policy.minimum <= decision.replicas <= policy.maximum
        memory = Memory.from_json(json.loads(json.dumps(decision.memory.to_json(), allow_nan=False)))
        assert memory == decision.memory
        now += step if abs(step) < 1e9 else 0

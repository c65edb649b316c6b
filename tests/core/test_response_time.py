"""A measured response time above its target asks for more replicas, as long as more replicas can help."""

from dataclasses import replace

import pytest

from cotenant.core.scaling import Decision, Memory, Sample, ScalingPolicy, State, decide

POLICY = ScalingPolicy(maximum=20, target=5.0, service=1.0, response_target=2.0)
EVERY = 5.0


def busy(ready: int, response: float | None, polls: int = 100, policy: ScalingPolicy = POLICY) -> Decision:
    """Decides after `polls` polls of a steady load that keeps 3 of the replicas busy; the last one is slow."""
    memory, done, sample = Memory(), 0.0, None
    for poll in range(polls):
        done += 3 * EVERY
        sample = Sample(
            backlog=0, arrived=done, completed=done - 3, in_flight=3, active=ready, ready=ready, response=1.0
        )
        memory = decide(policy, memory, sample, 1000.0 + poll * EVERY).memory
    assert sample is not None
    last = replace(sample, arrived=done + 15, completed=done + 12, response=response)
    return decide(policy, memory, last, 1000.0 + polls * EVERY)


def test_a_slow_response_asks_for_one_more():
    assert busy(5, 1.9).replicas == 5
    slow = busy(5, 2.5)
    assert (slow.replicas, slow.state) == (6, State.SCALING_UP)
    assert "answered in 2.5 s (the target is 2 s)" in slow.reason


@pytest.mark.parametrize("response", [None, float("nan"), -1.0, float("inf"), 2.0])
def test_no_sample_and_a_time_at_the_target_ask_for_nothing(response: float | None):
    assert busy(5, response).replicas == 5


def test_without_a_target_it_is_ignored():
    assert busy(5, 99.0, policy=replace(POLICY, response_target=None)).replicas == 5


def test_replicas_that_are_mostly_idle_would_not_answer_faster():
    decision = busy(9, 99.0)
    assert decision.replicas <= 9
    assert "answered" not in decision.reason


def test_the_next_step_waits_for_the_effect_of_the_last():
    decision = busy(5, 99.0)
    loading = Sample(
        backlog=0,
        arrived=1530,
        completed=1527,
        in_flight=3,
        active=5,
        ready=5,
        starting=(4.0,),
        response=99.0,
    )
    assert decide(POLICY, decision.memory, loading, 1505.0).replicas == 6


def test_what_it_asked_for_is_kept_when_it_has_helped():
    memory, at, done = busy(5, 99.0).memory, 1505.0, 1530.0
    for _ in range(50):
        at, done = at + EVERY, done + 15
        sample = Sample(
            backlog=0, arrived=done, completed=done - 3, in_flight=3, active=6, ready=6, response=1.0
        )
        decision = decide(POLICY, memory, sample, at)
        memory = decision.memory
        assert decision.replicas == 6


def test_it_never_passes_the_maximum():
    assert busy(5, 99.0, policy=replace(POLICY, maximum=5)).replicas == 5

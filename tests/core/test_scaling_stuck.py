"""Scaling: a metric that is stuck, and the poll in which it begins or ends to be. More backlog never means fewer."""

from __future__ import annotations

import pytest

from cotenant.core.scaling import Decision, Memory, Sample, ScalingPolicy, State, decide


def play(policy: ScalingPolicy, samples: list[Sample]) -> list[Decision]:
    """Decides on each sample, one poll apart, whatever was decided."""
    memory, decisions = Memory(), list[Decision]()
    for number, sample in enumerate(samples):
        decisions.append(decide(policy, memory, sample, number * policy.poll))
        memory = decisions[-1].memory
    return decisions


@pytest.mark.parametrize("more", [1, 1000])
def test_a_stuck_metric_that_moves_withdraws_no_replica_that_waits(more: int) -> None:
    """While it was stuck, those that wait were kept, however long they were not needed."""
    policy = ScalingPolicy(minimum=1, maximum=50, service=0.001)
    figures = {"arrived": 500, "completed": 480, "in_flight": 2, "active": 2}
    stuck = Sample(backlog=20, ready=2, waiting=3, room=0, **figures)
    moved = Sample(backlog=20 + more, ready=2, waiting=3, room=0, **figures)
    *_, before, after = play(policy, [*[stuck] * 100, moved])
    assert before.state is State.METRIC_STUCK
    assert before.memory.surplus_since is not None
    assert before.replicas == after.replicas == 5


@pytest.mark.parametrize("equal", range(9, 16))
def test_less_backlog_brings_no_replica_that_the_same_backlog_would_not_bring(equal: int) -> None:
    """A slow response asks for more only while figures move: the poll that makes them stuck decides."""
    policy = ScalingPolicy(minimum=1, maximum=50, service=1.0, response_target=1.0)

    def sample(number: int, backlog: int) -> Sample:
        done = 15 * min(number, 20)
        return Sample(
            backlog=backlog, arrived=done, completed=done, in_flight=4, active=4, ready=4, response=4.0
        )

    played = play(policy, [sample(number, 1) for number in range(20 + equal)])
    now = (20 + equal) * policy.poll
    same, less = (
        decide(policy, played[-1].memory, sample(20 + equal, backlog), now).replicas for backlog in (1, 0)
    )
    assert less <= same

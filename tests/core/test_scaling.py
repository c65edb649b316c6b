"""Scaling: what it promises, in scripted cases. What holds for any play is in test_scaling_play.py."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from math import ceil, inf, nan, sin

import pytest
from core.scaling_world import World

from cotenant.core.errors import BadInput
from cotenant.core.idle import IdlePolicy
from cotenant.core.scaling import Memory, Sample, ScalingPolicy, State, decide


def steady(
    rate: float, until: float, takes: float, begin: float = 0.0, seed: int = 1
) -> list[tuple[float, float]]:
    """Messages at random, `rate` a second."""
    chance, at, messages = random.Random(seed), begin, list[tuple[float, float]]()
    while (at := at + chance.expovariate(rate)) < until:
        messages.append((at, takes))
    return messages


def quiet(ready: int = 1, **figures: object) -> Sample:
    known = {"backlog": 0, "arrived": 10, "completed": 10, "in_flight": 0, "active": 0, "ready": ready}
    return Sample(**(known | figures))  # type: ignore[arg-type]


def play(policy: ScalingPolicy, samples: list[Sample], begin: float = 0.0) -> list:
    """Decides on each sample, one poll apart, whatever was decided."""
    memory, decisions = Memory(), []
    for number, sample in enumerate(samples):
        decisions.append(decide(policy, memory, sample, begin + number * policy.poll))
        memory = decisions[-1].memory
    return decisions


# A burst


@pytest.mark.parametrize("minimum", [0, 1])
@pytest.mark.parametrize("target", [3.0, 5.0])
@pytest.mark.parametrize("cold", [5.0, 10.0, 45.0, 120.0])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("threshold", [15.0, 60.0, 600.0])
def test_a_burst_of_200_messages_is_cleared_in_time_with_one_turn(
    minimum: int, target: float, cold: float, known: bool, threshold: float
) -> None:
    """Also where no start was seen before, and where the threshold is shorter than a rate is remembered."""
    policy = ScalingPolicy(
        minimum=minimum, maximum=100, target=target, service=0.8, idle=IdlePolicy(threshold=threshold)
    )
    begin = 1002.0
    world = World(policy, [(begin, 0.8)] * 200, cold=cold, ready=minimum)
    world.memory = replace(world.memory, cold_start=cold if known else None)
    world.run(5000)
    late = begin + cold + 2 * target + 2 * policy.poll
    over = [at for at, each in world.decisions if at >= begin and (each.backlog_seconds or 0) > target]
    assert over
    assert max(over) <= late
    assert world.turns() == 1
    assert world.wanted[-1] == minimum
    assert len(world.waits) == 200


def test_an_idle_workload_says_what_goes_and_stays_at_its_minimum() -> None:
    policy = ScalingPolicy(minimum=1, maximum=9, service=0.8, idle=IdlePolicy(threshold=15))
    world = World(policy, [(102.0, 0.8)] * 200, cold=5, ready=1).run(160)
    idle = [each for at, each in world.decisions if at > 102 and each.state is State.IDLE]
    assert "releasing 8 replicas" in idle[0].reason
    assert {each.replicas for each in idle} == {1}
    assert "keeping 1 replica" in idle[-1].reason


def test_the_first_message_wakes_from_zero_at_once() -> None:
    policy = ScalingPolicy(minimum=0, maximum=4, idle=IdlePolicy(threshold=60))
    world = World(policy, [(502.0, 0.5)], cold=30).run(500)
    assert set(world.wanted) == {0}
    decision = world.poll()
    assert (decision.replicas, decision.state) == (1, State.WAKING)
    world.run(560)
    assert world.waits == [33.0]  # The rest of the poll, and the cold start.


def test_a_message_that_was_taken_at_once_wakes_too() -> None:
    """By its counter: the backlog is empty again."""
    policy = ScalingPolicy(minimum=0, maximum=4)
    first, second = play(policy, [quiet(ready=0, arrived=10), quiet(ready=0, arrived=11)])
    assert (first.replicas, second.replicas) == (0, 1)


# Steady load


@pytest.mark.parametrize("cold", [10.0, 180.0])
@pytest.mark.parametrize("shape", ["waves", "random levels", "noise"])
@pytest.mark.parametrize("busy", [2.0, 12.0])
def test_demand_within_20_percent_of_its_mean_causes_no_turn(cold: float, shape: str, busy: float) -> None:
    """Once the window in which a need is remembered is full, and where its lows are shorter than that."""
    policy = ScalingPolicy(minimum=1, maximum=90, service=2.0)
    chance = random.Random(3)
    levels = [chance.uniform(0.8, 1.2) for _ in range(90)]
    due, messages = 0.0, list[tuple[float, float]]()
    for at in range(5400):
        swing = {"waves": 1 + 0.2 * sin(at / 40), "random levels": levels[at // 60], "noise": 1.0}[shape]
        due += busy / 2 * swing
        while due >= 1:
            due -= 1
            messages.append((at + (chance.random() if shape == "noise" else 0.0), 2.0))
    world = World(policy, messages, ready=ceil(busy), cold=cold).run(5400)
    after = [each.replicas for at, each in world.decisions if at > 1500]
    rises = [b > a for a, b in itertools.pairwise(after) if a != b]
    assert sum(a != b for a, b in itertools.pairwise(rises)) == 0
    assert world.late(policy.target, 2000) < 0.01


def test_it_comes_down_when_less_arrives() -> None:
    policy = ScalingPolicy(minimum=1, maximum=60, service=1.0)
    world = World(policy, steady(12, 1200, 1.0) + steady(2, 4000, 1.0, begin=1200), ready=14).run(4000)
    assert max(world.wanted) >= 13
    assert 3 <= world.wanted[-1] <= 6


@pytest.mark.parametrize("ready", [2, 3, 4, 40])
def test_without_load_one_replica_is_left(ready: int) -> None:
    world = World(ScalingPolicy(minimum=0, maximum=60), ready=ready).run(900)
    assert world.wanted[-1] == 1
    assert world.turns() == 0


@pytest.mark.parametrize("wrong", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize("takes", [0.2, 2.0])
def test_a_configured_processing_time_that_is_wrong_is_corrected(wrong: float, takes: float) -> None:
    messages = steady(6 / takes, 3600, takes)
    right = ScalingPolicy(minimum=1, maximum=60, service=takes)
    expected = World(right, messages, ready=8).run(3600)
    world = World(replace(right, service=takes * wrong), messages, ready=8).run(3600)
    assert abs(world.replica_seconds / expected.replica_seconds - 1) < 0.35
    assert world.late(right.target, 300) <= expected.late(right.target, 300) + 0.02
    last = world.decisions[-1][1]
    assert last.service == pytest.approx(takes, rel=0.2)
    assert last.service_differs == (wrong != 1)


def test_a_processing_time_that_is_not_configured_is_learned() -> None:
    world = World(ScalingPolicy(minimum=1, maximum=60), steady(2, 1800, 4.0), ready=8).run(1800)
    assert world.decisions[-1][1].service == pytest.approx(4.0, rel=0.2)
    assert not world.decisions[-1][1].service_differs


@pytest.mark.parametrize(
    "seen",
    [
        {"arrived", "active"},
        {"completed", "active"},
        {"in_flight"},
        {"arrived", "in_flight"},
        {"in_flight", "active"},
    ],
    ids=", ".join,
)
def test_counters_that_the_queue_does_not_have_are_rebuilt(seen: set[str]) -> None:
    policy = ScalingPolicy(minimum=1, maximum=60, service=1.0)
    messages = steady(8, 2400, 1.0)
    expected = World(policy, messages, ready=8).run(2400)
    world = World(policy, messages, ready=8, seen=frozenset(seen)).run(2400)
    assert world.late(policy.target) < 0.02
    assert abs(world.replica_seconds / expected.replica_seconds - 1) < 0.35


def test_a_replica_that_works_on_many_messages_at_once_counts_as_many() -> None:
    one = World(ScalingPolicy(minimum=1, maximum=60, service=1.0), steady(8, 900, 1.0), ready=8).run(900)
    eight = play(
        ScalingPolicy(minimum=1, maximum=60, service=1.0, concurrency=8),
        [
            quiet(ready=2, arrived=n * 40, completed=n * 40, in_flight=8, active=2)
            for n in range(int(900 / 5))
        ],
    )
    assert one.decisions[-1][1].need in range(9, 16)
    assert eight[-1].need == 2


# Bad moments: figures


@pytest.mark.parametrize("missing", [None, nan, inf, -1.0, "12"])
def test_without_figures_the_replicas_stay(missing: object) -> None:
    policy = ScalingPolicy(minimum=0, maximum=9, idle=IdlePolicy(threshold=10))
    memory = play(policy, [quiet(ready=3)])[-1].memory
    decision = decide(policy, memory, quiet(ready=3, backlog=missing), 1000.0)
    assert (decision.replicas, decision.state) == (3, State.NO_METRIC)
    assert decision.memory is memory
    assert decision.backlog_seconds is None


def test_figures_that_were_read_before_the_last_ones_change_nothing() -> None:
    policy = ScalingPolicy(minimum=0, maximum=9)
    memory = decide(policy, Memory(), quiet(at=99.0), 100.0).memory
    for at in (99.0, 98.0, -1e300):
        decision = decide(policy, memory, quiet(backlog=5000, at=at), 105.0)
        assert (decision.replicas, decision.state) == (1, State.NO_METRIC), at
        assert decision.memory is memory
    assert decide(policy, memory, quiet(backlog=5000, at=104.0), 105.0).replicas > 1


def test_a_metric_that_is_stuck_while_gpus_work_holds_the_replicas() -> None:
    policy = ScalingPolicy(minimum=1, maximum=50, service=1.0)
    samples = [quiet(ready=20, backlog=40, arrived=500, in_flight=20, active=20)] * 200
    decisions = play(policy, samples)
    assert {each.replicas for each in decisions[12:]} == {20}
    assert {each.state for each in decisions[12:]} == {State.METRIC_STUCK}


def test_a_stuck_metric_is_believed_again_when_it_moves() -> None:
    policy = ScalingPolicy(minimum=1, maximum=50, service=1.0)
    stuck = [quiet(ready=2, backlog=40, arrived=500, in_flight=2, active=2)] * 20
    moved = quiet(ready=2, backlog=400, arrived=900, completed=20, in_flight=2, active=2)
    decisions = play(policy, [*stuck, moved])
    assert decisions[-2].state is State.METRIC_STUCK
    assert decisions[-1].state is State.SCALING_UP


def test_a_counter_that_was_reset_is_no_burst_and_no_silence() -> None:
    policy = ScalingPolicy(minimum=1, maximum=60, service=1.0)
    messages = steady(8, 1800, 1.0)
    expected, world = World(policy, messages, ready=8), World(policy, messages, ready=8)
    expected.run(1800)
    while world.now < 1800:
        base = 5000 if world.now < 700 else -sum(at <= 700 for at, _ in messages)
        sample = world.sample()
        world.poll(arrived=None if sample.arrived is None else max(0, _count(world, 5) + base))
    assert max(world.wanted) <= max(expected.wanted) + 2
    assert min(world.wanted) >= min(expected.wanted) - 2


def _count(world: World, ahead: float) -> int:
    return sum(at <= world.now + ahead for at, _ in world.messages)


def test_a_source_whose_replicas_disagree_about_a_counter_is_no_burst() -> None:
    policy = ScalingPolicy(minimum=1, maximum=60, service=1.0)
    samples = [
        quiet(
            ready=1, arrived=100_000 + 5 * n - 30 * (n % 2), completed=100_000 + 5 * n, in_flight=1, active=1
        )
        for n in range(200)
    ]
    assert max(each.replicas for each in play(policy, samples)) <= 3


@pytest.mark.parametrize("jump", [3600.0, 86400.0 * 365, -3600.0, -86400.0 * 365, 40.0, -40.0])
def test_a_clock_that_jumps_takes_nothing_away_and_starts_nothing(jump: float) -> None:
    policy = ScalingPolicy(minimum=0, maximum=60, service=1.0, idle=IdlePolicy(threshold=300))
    world = World(policy, steady(8, 4000, 1.0), ready=10).run(2000)
    before, memory = world.wanted[-1], world.memory
    shifted = list[int]()
    while world.now < 2200:
        world.advance(world.now + policy.poll)
        decision = decide(policy, memory, world.sample(), world.now + jump)
        memory = decision.memory
        shifted.append(decision.replicas)
        world.scale(decision.replicas)
    assert before <= min(shifted)
    assert max(shifted) <= before + 3


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_neither_releases_nor_holds_for_ever(jump: float) -> None:
    policy = ScalingPolicy(minimum=0, maximum=4, idle=IdlePolicy(threshold=900))
    samples = [quiet()] * 20
    memory = play(policy, samples)[-1].memory
    at = 20 * policy.poll + jump
    assert decide(policy, memory, quiet(), at).replicas == 1
    for number in range(200):
        decision = decide(policy, memory, quiet(), at + number * policy.poll)
        memory = decision.memory
    assert decision.replicas == 0


def test_time_that_stands_still_holds_the_replicas() -> None:
    policy = ScalingPolicy(minimum=0, maximum=9)
    memory = Memory()
    for number in range(50):
        decision = decide(policy, memory, quiet(ready=2, backlog=number, arrived=number), 7.0)
        memory = decision.memory
    assert decision.replicas == 2


# Bad moments: replicas


def test_a_message_that_fails_for_ever_keeps_one_replica_and_is_reported() -> None:
    policy = ScalingPolicy(minimum=0, maximum=9, service=0.8, idle=IdlePolicy(threshold=60))
    samples = [
        quiet(backlog=n % 2, arrived=11, completed=10, in_flight=(n + 1) % 2, active=1) for n in range(800)
    ]
    decisions = play(policy, samples)
    assert {each.replicas for each in decisions} == {1}
    assert {each.state for each in decisions[20:]} == {State.STALLED}
    assert "nothing completes" in decisions[-1].reason


def test_servers_that_hang_get_no_further_replica() -> None:
    policy = ScalingPolicy(minimum=1, maximum=50, service=0.8)
    samples = [
        quiet(ready=3, backlog=5 * n, arrived=5 * n + 3, completed=0, in_flight=3, active=0)
        for n in range(200)
    ]
    decisions = play(policy, samples)
    assert {each.state for each in decisions[16:]} == {State.STALLED}
    assert {each.replicas for each in decisions[16:]} == {3}


def test_a_hang_does_not_teach_a_wrong_processing_time() -> None:
    policy = ScalingPolicy(minimum=1, maximum=50, service=0.8)
    samples = [quiet(ready=9, backlog=5, arrived=14, completed=0, in_flight=9, active=0)] * 700
    samples.append(quiet(ready=9, backlog=0, arrived=14, completed=14, active=0))
    assert play(policy, samples)[-1].service < 80


def test_a_cold_start_is_not_a_stall() -> None:
    policy = ScalingPolicy(minimum=0, maximum=9, service=0.8)
    samples = [quiet(ready=0, starting=(n * 5.0,), backlog=1 + n, arrived=11 + n) for n in range(40)]
    decisions = play(policy, samples)
    assert State.STALLED not in {each.state for each in decisions}


def test_replicas_that_never_become_ready_are_not_multiplied() -> None:
    policy = ScalingPolicy(minimum=0, maximum=50, service=0.8)
    world = World(policy, steady(3, 1500, 0.8, begin=100), cold=inf).run(1500)
    after = [each for at, each in world.decisions if at > 100 + 3 * 60 + 10]
    assert {each.state for each in after} == {State.NOT_STARTING}
    assert len({each.replicas for each in after}) == 1
    assert "none becomes ready" in after[-1].reason


def test_one_replica_that_crashes_does_not_stop_others_from_starting() -> None:
    policy = ScalingPolicy(minimum=1, maximum=50, service=1.0)
    samples = list[Sample]()
    for n in range(100):
        ended = (10.0,) if n % 4 == 0 else ()
        samples.append(
            quiet(
                ready=2 + n // 4,
                starting=(500.0 + 5 * n,),
                cold_starts=ended,
                backlog=200,
                arrived=n * 200,
                completed=n * 3,
                in_flight=2,
            )
        )
    assert State.NOT_STARTING not in {each.state for each in play(policy, samples)}


def test_a_full_cluster_gets_one_replica_in_line_and_it_is_withdrawn_when_not_needed() -> None:
    policy = ScalingPolicy(minimum=1, maximum=50, service=1.0)
    world = World(policy, steady(10, 900, 1.0, begin=20), ready=1, cards=4).run(900)
    assert max(world.wanted) == 5
    assert world.states[100] is State.WAITING_FOR_GPU
    served = 900 + (len(world.messages) - world.started) / 4
    world.run(served)
    ended = world.now
    world.run(ended + 400)
    assert world.wanted[-1] <= 4
    assert not world.waiting


def test_a_wake_on_a_full_cluster_waits_in_line() -> None:
    policy = ScalingPolicy(minimum=0, maximum=5, service=1.0)
    world = World(policy, [(12.0, 1.0)] * 50, cards=0).run(600)
    assert set(world.wanted[2:]) == {1}
    assert set(world.states[4:]) == {State.WAITING_FOR_GPU}
    world.cards = 3
    world.run(700)
    assert world.started == 50


def test_at_the_maximum_it_says_so() -> None:
    policy = ScalingPolicy(minimum=1, maximum=3, service=1.0)
    world = World(policy, steady(10, 600, 1.0), ready=1).run(600)
    assert world.states[-1] is State.AT_MAXIMUM
    assert world.wanted[-1] == 3


def test_a_start_longer_than_the_target_is_no_reason_to_start_many() -> None:
    """Two a minute need two replicas, whatever a start takes."""
    policy = ScalingPolicy(minimum=1, maximum=50, target=3.0, service=2.0)
    world = World(policy, [(30.0 * n, 2.0) for n in range(1, 200)], ready=1, cold=300).run(6000)
    assert max(world.wanted) <= 2


# Idle


def test_an_idle_workload_is_released_exactly_at_its_threshold() -> None:
    policy = ScalingPolicy(minimum=0, maximum=4, idle=IdlePolicy(threshold=900))
    world = World(policy, [(10.0, 2.0)], ready=1).run(2000)
    released = next(at for at, each in world.decisions if each.replicas == 0)
    assert released == 15 + 900  # 15: the last poll that saw it at work.
    assert world.states[-1] is State.IDLE


@pytest.mark.parametrize("when_others_wait", [60.0, None])
def test_it_is_released_sooner_while_others_wait(when_others_wait: float | None) -> None:
    policy = ScalingPolicy(
        minimum=0, maximum=4, idle=IdlePolicy(threshold=900, when_others_wait=when_others_wait)
    )
    world = World(policy, [(10.0, 2.0)], ready=1, waited=True).run(500)
    assert world.wanted[-1] == (0 if when_others_wait else 1)


def test_a_message_of_15_minutes_is_never_cut_off() -> None:
    for seen in ({"arrived", "completed", "in_flight"}, {"arrived", "completed", "active"}, {"in_flight"}):
        policy = ScalingPolicy(minimum=0, maximum=4, service=1.0, idle=IdlePolicy(threshold=60))
        world = World(policy, [(100.0, 900.0)], cold=10, waited=True, seen=frozenset(seen)).run(3000)
        assert world.ends == [1010.0], seen
        assert world.cut_off == 0
        assert world.wanted[-1] == 0


def test_loading_is_not_idle() -> None:
    policy = ScalingPolicy(minimum=0, maximum=4, idle=IdlePolicy(threshold=60))
    samples = [quiet(ready=0, starting=(5.0 * n,)) for n in range(100)]
    assert {each.replicas for each in play(policy, samples)} == {1}


def test_idleness_that_nobody_can_see_releases_nothing() -> None:
    policy = ScalingPolicy(minimum=0, maximum=4, idle=IdlePolicy(threshold=60))
    samples = [Sample(backlog=0, arrived=5, completed=5, ready=1)] * 100
    assert {each.replicas for each in play(policy, samples)} == {1}


def test_without_a_threshold_one_replica_stays() -> None:
    policy = ScalingPolicy(minimum=0, maximum=4)
    assert {each.replicas for each in play(policy, [quiet()] * 3000)} == {1}


def test_idle_releases_to_the_minimum() -> None:
    policy = ScalingPolicy(minimum=2, maximum=9, idle=IdlePolicy(threshold=60))
    decisions = play(policy, [quiet(ready=6)] * 20)
    assert decisions[-1].replicas == 2


# The policy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("maximum", 0),
        ("maximum", 2.5),
        ("minimum", -1),
        ("minimum", 11),
        ("target", 0),
        ("target", nan),
        ("target", inf),
        ("service", -1),
        ("service", nan),
        ("concurrency", 0),
        ("concurrency", True),
        ("poll", 0),
        ("response_target", 0),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_the_name_of_its_field(field: str, value: float) -> None:
    with pytest.raises(BadInput, match=f"^{field}: "):
        ScalingPolicy(**({"maximum": 10} | {field: value}))  # type: ignore[arg-type]


def test_replicas_outside_the_limits_are_brought_back() -> None:
    policy = ScalingPolicy(minimum=2, maximum=4)
    for ready, expected in ((0, 2), (1, 2), (9, 4)):
        for backlog in (None, 0, 100):
            assert decide(policy, Memory(), quiet(ready=ready, backlog=backlog), 5.0).replicas >= expected
            assert decide(policy, Memory(), quiet(ready=ready, backlog=backlog), 5.0).replicas <= 4


def test_each_reason_is_one_sentence_with_figures() -> None:
    policy = ScalingPolicy(minimum=0, maximum=60, service=1.0, idle=IdlePolicy(threshold=120))
    messages = steady(8, 900, 1.0, begin=60)
    world = World(policy, messages, cards=13).run(1500)
    assert {State.WAKING, State.ACTIVE, State.IDLE, State.WAITING_FOR_GPU} <= set(world.states)
    for _, decision in world.decisions:
        assert "\n" not in decision.reason
        assert 0 < len(decision.reason) < 250
        assert any(char.isdigit() for char in decision.reason)

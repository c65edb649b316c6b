"""How much above the peak is enough is learned from how peaks grew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.rightsizing.backtest import FOLDS, Pair
from cotenant.core.rightsizing.headroom import CAP, FLOOR, MISS, SLACK, Headroom, learn

GROWTH = st.floats(0.2, 3.0)


def pairs(growths: list[float], lag: float = 0.0) -> list[Pair]:
    return [Pair(lag, each, number) for number, each in enumerate(growths)]


def rate(rule: Headroom, found: list[Pair]) -> float:
    return sum(each.growth > 1 + rule.of(each.lag) for each in found) / len(found)


@given(st.floats(0.0, 2.0), st.floats(0.0, 1.0), st.floats(0.0, 10.0))
def test_headroom_is_never_below_the_floor_nor_above_what_its_parts_allow(
    base: float, reach: float, lag: float
) -> None:
    wanted = Headroom(base, reach).of(lag)
    assert FLOOR <= wanted <= max(FLOOR, base + CAP)


@given(st.lists(st.tuples(GROWTH, st.floats(0, 1)), max_size=60))
def test_whatever_was_seen_the_rule_is_one_of_the_grid_and_its_score_is_a_rate(
    seen: list[tuple[float, float]],
) -> None:
    learned = learn([Pair(lag, growth, number) for number, (growth, lag) in enumerate(seen)])
    assert FLOOR <= learned.headroom.base <= 0.5
    assert 0 <= learned.headroom.reach <= 1
    assert learned.pairs == len(seen)
    if learned.score is None:
        assert not seen
    else:
        assert 0 <= learned.score.miss <= 1
        assert learned.score.slack >= 0
        assert learned.score.containers == len(seen)


def test_containers_that_never_grow_get_the_least() -> None:
    learned = learn(pairs([1.0] * 600))
    assert learned.headroom.of(0.0) == FLOOR
    assert learned.score is not None
    assert learned.score.miss == 0
    assert learned.score.slack == pytest.approx(FLOOR)


@pytest.mark.parametrize("part", [0.05, 0.1, 0.2, 0.3])
def test_containers_that_grow_get_enough_for_the_bound(part: float) -> None:
    many = 1500
    grow = int(many * part)
    found = pairs([1.0] * (many - grow) + [1.15 + 0.12 * at / grow for at in range(1, grow + 1)])
    learned = learn(found)
    assert rate(Headroom(FLOOR), found) >= part * 0.9
    assert rate(learned.headroom, found) < MISS


def test_those_below_their_siblings_get_more_where_they_come_up_to_them() -> None:
    behind = pairs([1.0] * 210 + [1.3] * 90, lag=0.26)
    level = pairs([1.0] * 900)
    learned = learn([*behind, *level])
    assert learned.headroom.of(0.0) < 0.2
    assert learned.headroom.of(0.26) >= 0.3


def test_those_below_their_siblings_get_no_more_where_they_stay_there() -> None:
    learned = learn([*pairs([1.0] * 500, lag=0.4), *pairs([1.0] * 500)])
    assert learned.headroom.of(0.4) == FLOOR


def test_without_data_the_prior_decides() -> None:
    learned = learn([])
    assert learned.score is None
    assert 0.18 <= learned.headroom.of(0.0) <= 0.31


def test_more_data_moves_it_away_from_the_prior() -> None:
    steps = [learn(pairs([1.0] * many)).headroom.of(0.0) for many in (0, 6, 60, 600)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == FLOOR < steps[0]


def test_containers_of_one_workload_say_less_than_as_many_workloads() -> None:
    """What such a workload does next, it does to all of them: that it never grew is one observation."""
    calm = [1.0] * 600
    apart = learn(pairs(calm))
    together = learn([Pair(0.0, each, number // 100) for number, each in enumerate(calm)])
    assert together.headroom.of(0.0) > apart.headroom.of(0.0) == FLOOR


def test_growth_of_the_past_is_not_relied_on_to_take_up_the_headroom() -> None:
    """A third grew by half: with 50 % for all, slack would be 33 % if that went on, and 50 % if it stopped."""
    learned = learn(pairs([1.0] * 400 + [1.5] * 200))
    assert learned.headroom.of(0.0) < 0.5
    assert learn(pairs([1.0] * 200 + [1.5] * 400)).headroom.of(0.0) == 0.5


def test_jumps_that_no_headroom_covers_waste_none_for_the_others() -> None:
    calm = learn(pairs([1.0] * 450))
    jumps = learn(pairs([1.0] * 400 + [9.0] * 50))
    assert jumps.headroom == calm.headroom
    assert jumps.score is not None
    assert jumps.score.miss == pytest.approx(50 / 450), "they are misses all the same, and told"


def test_jumps_that_no_headroom_covers_count_as_long_as_the_bound_can_be_kept() -> None:
    """With 3 % lost already, only 2 % more may be missed."""
    grown = [1.0] * 1350 + [1.15 + 0.2 * at / 100 for at in range(1, 101)]
    alone, beside = learn(pairs([*grown, *[1.0] * 50])), learn(pairs([*grown, *[9.0] * 50]))
    assert beside.headroom.of(0.0) > alone.headroom.of(0.0)


def test_slack_is_kept_within_its_bound_where_misses_cannot_be() -> None:
    """One in three grows by anything up to three quarters, and one in three shrinks by a third."""
    found = pairs([1.0] * 400 + [0.66] * 400 + [1 + 0.75 * at / 400 for at in range(1, 401)])
    learned = learn(found)
    assert rate(learned.headroom, found) > MISS
    assert rate(learned.headroom, found) < rate(Headroom(FLOOR), found)
    assert learned.score is not None
    assert learned.score.slack < SLACK


@given(st.lists(GROWTH, min_size=1, max_size=40))
def test_as_many_misses_as_the_peak_and_fifteen_percent_or_fewer(growths: list[float]) -> None:
    found = pairs(growths)
    assert rate(learn(found).headroom, found) <= rate(Headroom(FLOOR), found)


def test_what_is_told_is_measured_on_containers_that_were_not_learned_from() -> None:
    """One fold grows and the others do not: the rule that the others choose misses all of it."""
    found = [Pair(0.0, 1.3 if number % FOLDS == 0 else 1.0, number) for number in range(1000)]
    learned = learn(found)
    assert learned.score is not None
    assert learned.score.miss == pytest.approx(1 / FOLDS)

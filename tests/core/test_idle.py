"""When an idle workload gives its GPUs back."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import BadInput
from cotenant.core.idle import CANDIDATES, ENOUGH_GAPS, Gaps, IdlePolicy, wake_cost


def after(*gaps: float, cold_start: float = 30.0) -> Gaps:
    learned = Gaps()
    for gap in gaps:
        learned = learned.plus(gap, cold_start)
    return learned


def test_it_is_released_at_the_threshold_and_not_before() -> None:
    policy = IdlePolicy(900)
    assert not policy.released(899.9, waited=False)
    assert policy.released(900, waited=False)


def test_while_others_wait_the_shorter_threshold_counts() -> None:
    policy = IdlePolicy(900, when_others_wait=60)
    assert policy.released(60, waited=True)
    assert not policy.released(60, waited=False)
    assert IdlePolicy(20, when_others_wait=60).released(20, waited=True)


def test_a_minute_counts_while_others_wait_unless_something_else_is_asked_for() -> None:
    assert IdlePolicy(900).seconds(30, True) == 60
    assert IdlePolicy(900, when_others_wait=None).seconds(30, True) == 900


def test_without_a_threshold_nothing_is_released() -> None:
    assert not IdlePolicy(None).released(1e9, waited=True)


def test_auto_begins_with_what_a_wake_costs() -> None:
    assert IdlePolicy("auto").seconds(30, False) == wake_cost(30) == 330
    assert IdlePolicy("auto").seconds(30, True) == 60


def test_auto_lets_go_early_when_gaps_are_long() -> None:
    learned = after(*[7200.0] * ENOUGH_GAPS)
    assert learned.threshold(30.0) == CANDIDATES[0]
    assert after(*[7200.0] * (ENOUGH_GAPS - 1)).threshold(30.0) == 330


def test_auto_holds_when_gaps_are_a_little_longer_than_the_safe_threshold() -> None:
    """Each release would be followed by a cold start a minute later."""
    learned = after(*[400.0] * 20)
    assert learned.threshold(30.0) in {330.0, 15.0, 480.0}
    costs = dict(zip(CANDIDATES, learned.costs, strict=True))
    assert costs[480] == min(costs[each] for each in CANDIDATES if each > 90)


def test_auto_forgets_old_gaps() -> None:
    learned = after(*[7200.0] * 50, *[20.0] * 200)
    assert learned.threshold(30.0) >= 20


def test_a_gap_shorter_than_every_candidate_teaches_nothing() -> None:
    assert after(*[5.0] * 100) == Gaps()


@given(st.lists(st.floats(15, 20_000), min_size=1, max_size=40), st.floats(0, 600))
def test_auto_is_never_worse_than_a_tenth_below_the_safe_threshold(gaps: list[float], cold: float) -> None:
    learned = after(*gaps, cold_start=cold)
    threshold = learned.threshold(cold)
    assert threshold == wake_cost(cold) or threshold in CANDIDATES
    if threshold != wake_cost(cold):
        assert learned.costs[CANDIDATES.index(int(threshold))] == min(learned.costs)


@pytest.mark.parametrize("value", [0, -1, nan, inf, "15m", 1e12])
@pytest.mark.parametrize("field", ["threshold", "when_others_wait"])
def test_a_threshold_that_is_no_time_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"^idle {field}: "):
        IdlePolicy(**{field: value})  # type: ignore[arg-type]

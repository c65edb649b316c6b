"""The history is split at past moments, and what came is held against what was known."""

from __future__ import annotations

import math

import pytest
from core.rightsizing.made import group, track
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.rightsizing.backtest import FOLDS, MOST_PAIRS, SPLITS, lag_of, pairs, score, splits
from cotenant.core.rightsizing.history import highest


def test_a_container_is_looked_at_once_at_each_split() -> None:
    found = pairs([group(track([10] * 40 + [11] * 20 + [12] * 20 + [22] * 40))], 0, 120, 12)
    assert [each.growth for each in found] == [1.2, 2.0]


def test_the_time_after_a_split_is_as_long_as_the_time_before() -> None:
    assert all(after - before == pytest.approx(before) for before, after in SPLITS)


def test_a_replica_that_came_later_is_held_to_the_figure_too() -> None:
    made = group(track([10] * 120, "a"), track([13] * 60, "b", first=60))
    assert sorted(each.growth for each in pairs([made], 0, 120, 12)) == [1.0, 1.0, 1.3, 1.3]


def test_what_was_known_too_shortly_takes_no_part() -> None:
    made = group(track([10] * 10, first=55))
    assert not pairs([made], 0, 120, 40)
    assert pairs([made], 0, 120, 12)


def test_how_far_behind_its_siblings_is_by_what_was_known_then() -> None:
    behind, ahead = track([10] * 120, "a"), track([10] * 60 + [20] * 60, "b")
    made = group(behind, siblings=[behind, ahead])
    assert lag_of(made, 60) == 0
    assert lag_of(made, 120) == pytest.approx(math.log(2))


def test_folds_keep_a_workload_together_if_there_are_enough() -> None:
    many = [group(track([1] * 60, "a"), track([1] * 60, "b"), workload=f"w{at}") for at in range(10)]
    found = pairs(many, 0, 60, 4)
    folds = [each.fold for each in found]
    assert set(folds) == set(range(FOLDS))
    assert all(folds[at] == folds[at + 1] for at in range(0, len(folds), 2))
    few = [group(*(track([1] * 60, f"c{at}") for at in range(10)), workload="w")]
    assert {each.fold for each in pairs(few, 0, 60, 4)} == set(range(FOLDS))


def test_there_are_at_most_so_many_pairs() -> None:
    many = [group(track([1] * 12, str(at)), workload=str(at)) for at in range(MOST_PAIRS // 2)]
    assert len(pairs(many, 0, 12, 1)) == MOST_PAIRS


@given(st.lists(st.lists(st.floats(0, 100), min_size=24, max_size=24), min_size=1, max_size=6))
def test_a_figure_of_the_whole_peak_is_never_missed_and_a_figure_of_nothing_always(
    levels: list[list[float]],
) -> None:
    groups = [group(track(each, str(at)), workload=str(at)) for at, each in enumerate(levels)]
    whole = score(groups, 0, 24, 2, lambda each, _: highest(each.tracks, 10**6) + 1)
    nothing = score(groups, 0, 24, 2, lambda *_: 0.0)
    looked = list(splits(groups, 0, 24, 2))
    assert len(looked) <= len(SPLITS) * len(levels)
    if looked:
        assert whole is not None
        assert nothing is not None
        assert whole.miss == 0
        assert (nothing.miss, nothing.slack) == (1, 0)
    else:
        assert whole is None


def test_containers_that_let_go_of_their_memory_do_not_decide_alone() -> None:
    found = score([group(track([100] * 30 + [0.01] * 30))], 0, 60, 4, lambda *_: 115.0)
    assert found is not None
    assert found.slack <= 3

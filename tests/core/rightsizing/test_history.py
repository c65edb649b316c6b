"""What a container used over time."""

from __future__ import annotations

from core.rightsizing.made import track
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.rightsizing.history import Pool, span

LEVELS = st.lists(st.floats(0, 1e12), min_size=1, max_size=60)


@given(LEVELS, st.integers(-5, 70), st.integers(0, 70))
def test_a_cut_parts_the_peaks(levels: list[float], cut: int, more: int) -> None:
    one = track(levels)
    inside = levels[max(0, cut) : max(0, cut + more)]
    assert one.before(cut) == max(levels[: max(0, cut)], default=0.0)
    assert one.between(cut, cut + more) == (max(inside) if inside else None)


@given(LEVELS, st.floats(1, 100))
def test_a_percentile_is_one_of_the_values_and_grows(levels: list[float], percent: float) -> None:
    one = track(levels)
    assert one.percentile(one.end, percent) in levels
    assert one.percentile(one.end, percent) <= one.percentile(one.end, 100) == max(levels)
    assert one.percentile(0, percent) == 0


def test_plain_samples_show_a_start_if_they_begin_later_than_the_data() -> None:
    assert track([5, 5], first=10).starts(began=0) == 1
    assert track([5, 5], first=0).starts(began=0) == 0
    assert track([5, 5], first=1).starts(began=0) == 0, (
        "the first samples of two containers are seldom together"
    )


def test_memory_that_is_let_go_and_taken_again_is_a_start() -> None:
    assert track([8, 8, 0.1, 0.1, 8, 8, 0, 7]).starts(began=0) == 2
    assert track([8, 3, 8, 2, 8]).starts(began=0) == 0, "less load is no start"


def test_a_peak_since_the_start_includes_the_start_and_falls_at_the_next() -> None:
    assert track([3, 5, 5, 6], since_start=True).starts(began=0) == 1
    assert track([3, 5, 2, 2, 6, 1], since_start=True).starts(began=0) == 3


def test_a_pool_has_the_highest_of_all() -> None:
    pool = Pool([track([1, 2, 3]), track([2, 2, 2])])
    assert [pool.before(cut) for cut in (0, 1, 2, 3, 3)] == [0, 2, 2, 3, 3]


def test_the_span_goes_from_the_first_bucket_to_the_one_after_the_last() -> None:
    assert span([track([1, 2], first=4), track([1], first=9)]) == (4, 10)

"""What is remembered of arrivals and of peaks, in bounded space."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.arrivals import MOST_PEAKS, MOST_POINTS, Arrivals, Peaks, counted, without_ripple


@pytest.mark.parametrize(
    ("last", "value", "rose"),
    [(5, 8, 3), (5, 5, 0), (500, 3, 3), (None, 8, None), (5, None, None), (500, 0, 0)],
)
def test_a_counter_that_goes_back_was_reset(last: float, value: float, rose: float) -> None:
    assert counted(last, value) == rose


def test_a_counter_that_goes_back_a_little_is_held() -> None:
    assert without_ripple(1000, 990) == 1000
    assert without_ripple(1000, 20) == 20
    assert without_ripple(1000, 1001) == 1001
    assert without_ripple(None, 20) == 20
    assert without_ripple(20, None) is None


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.integers(0, 1000)), min_size=2, max_size=400),
    st.floats(1, 1000),
)
def test_recent_arrivals_are_counted_nearly_exactly(polls: list[tuple[float, int]], window: float) -> None:
    arrivals, now, exact = Arrivals(), 0.0, list[tuple[float, int]]()
    for passed, count in polls:
        now = round(now + passed, 3)
        arrivals = arrivals.plus(now, count, 1000.0)
        exact.append((now, count))
        assert len(arrivals.times) <= MOST_POINTS
    counted_ = arrivals.within(now, window)
    slack = window / 10 + 101
    least = sum(count for at, count in exact[1:] if at > now - window + slack)
    most = sum(count for at, count in exact[1:] if at > now - window - slack)
    assert least - 1e-3 <= counted_ <= most + 1e-3


@given(st.lists(st.tuples(st.floats(0.1, 20), st.integers(0, 500)), min_size=1, max_size=300))
def test_peaks_are_never_forgotten_too_early_and_are_few(polls: list[tuple[float, int]]) -> None:
    peaks, now, seen = Peaks(), 0.0, list[tuple[float, int]]()
    for passed, value in polls:
        now += passed
        peaks = peaks.plus(now, value, 300.0)
        seen.append((now, value))
        assert peaks.largest >= max(each for at, each in seen if at >= now - 300)
        assert len(peaks.times) <= MOST_PEAKS


def test_a_peak_is_forgotten_after_its_window() -> None:
    peaks = Peaks().plus(0.0, 9, 300.0).plus(10.0, 3, 300.0)
    assert peaks.plus(300.0, 1, 300.0).largest == 9
    assert peaks.plus(301.0, 1, 300.0).largest == 3

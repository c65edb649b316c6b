"""How much to ask for, from the most that was in use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.rightsizing import would_do
from cotenant.core.rightsizing.rounding import round_up
from cotenant.core.units import format_exact

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("peak", "text"),
    [
        (31 * GIB // 10, "3.5Gi"),
        (GIB, "1152Mi"),
        (300 * MIB, "352Mi"),
        (768 * MIB, "896Mi"),
        (1 * MIB, "32Mi"),
        (20 * GIB, "22Gi"),
        (70 * GIB, "80Gi"),
    ],
)
def test_the_peak_and_some_headroom_as_a_round_figure(peak: int, text: str) -> None:
    assert format_exact(would_do(peak)) == text


@given(st.integers(1, 1 << 41))
def test_it_is_at_least_a_tenth_more_and_not_much_more_than_that(peak: int) -> None:
    enough = would_do(peak)
    assert enough >= peak * 110 // 100
    assert enough <= peak * 110 // 100 * 9 // 8 + 32 * MIB


@given(st.integers(1, 1 << 41), st.integers(0, 1 << 41))
def test_a_higher_peak_never_asks_for_less(peak: int, more: int) -> None:
    assert would_do(peak) <= would_do(peak + more)


@given(st.floats(1, 1e15), st.sampled_from([8, 64]))
def test_advice_is_rounded_up_by_less_than_its_fineness(need: float, fineness: int) -> None:
    rounded = round_up(need, fineness)
    assert need <= rounded <= need + max(1.0, need / fineness) + 1

"""How many servers keep messages from waiting."""

from __future__ import annotations

from math import exp, factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.queueing import LARGE, servers

SIZE = ((0.01, 1e9),)
THREE = ((0.05, 20.0), (0.01, 40.0), (0.005, 80.0))


def late(n: int, load: float, patience: float) -> float:
    """Erlang C by its definition."""
    busy = load**n / factorial(n) * n / (n - load)
    return busy / (sum(load**k / factorial(k) for k in range(n)) + busy) * exp(-(n - load) * patience)


def test_quick_messages_need_few_spare_servers_and_slow_ones_more() -> None:
    assert servers(20, 5 / 0.1, SIZE, 999) == (21,)
    assert servers(20, 3 / 5, SIZE, 999) == (26,)


@given(st.floats(0.01, 60), st.floats(0.05, 50))
def test_they_are_the_fewest_that_keep_the_promise(load: float, patience: float) -> None:
    (n,) = servers(load, patience, SIZE, 999)
    assert n > load
    assert late(n, load, patience) <= 0.01 * (1 + 1e-9)
    if n - 1 > load:
        assert late(n - 1, load, patience) > 0.01 * (1 - 1e-9)


@given(st.floats(0.001, 3000), st.floats(0, 3000), st.floats(1e-4, 1e4))
def test_more_load_never_needs_fewer(load: float, more: float, patience: float) -> None:
    fewer, further = servers(load, patience, SIZE, 10**6), servers(load + more, patience, SIZE, 10**6)
    assert fewer <= further


@given(st.floats(0, 1e9), st.floats(0, 1e7), st.integers(1, 2000))
def test_the_three_sizes_are_in_order_and_limited(load: float, patience: float, limit: int) -> None:
    up, to, down = servers(load, patience, THREE, limit)
    assert 0 <= up <= to <= down <= limit


def test_one_that_is_not_worth_it_is_left_out() -> None:
    assert servers(0.02, 0.001, ((0.0001, 1.0),), 99) == (1,)
    assert servers(0.02, 0.001, ((0.0001, 1e9),), 99) > (1,)


@pytest.mark.parametrize("load", [LARGE * 0.999, LARGE * 1.001, 1e6])
def test_large_pools_are_sized_without_a_long_loop(load: float) -> None:
    (n,) = servers(load, 0.1, SIZE, 10**8)
    assert load < n < load * 1.04


def test_no_load_needs_none() -> None:
    assert servers(0, 1, THREE, 10) == (0, 0, 0)

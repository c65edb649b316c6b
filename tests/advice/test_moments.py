"""Times as files have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.advice.moments import parse_moment

NEW_YEAR = 1767225600.0


@pytest.mark.parametrize(
    "text",
    [
        "1767225600",
        "1767225600.0",
        "1.7672256e9",
        "1767225600000",
        "1767225600000000",
        "1767225600000000000",
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00+01:00",
        "2026-01-01 00:00:00",
        "2026-01-01 00:00:00.000 UTC",
        "2026-01-01",
        "20260101T000000Z",
        " 2026-01-01T00:00:00.000000Z ",
        "2026/01/01 00:00:00.000",
    ],
)
def test_every_spelling_of_one_moment(text: str) -> None:
    assert parse_moment(text) == NEW_YEAR


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-inf", "1e400", "12:30", "2026-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text)


def test_small_numbers_are_seconds_unless_said_otherwise() -> None:
    assert parse_moment("60000") == 60000
    assert parse_moment("60000", "ms") == 60
    assert parse_moment("-5") == -5


@given(st.floats(1e9, 4e9), st.sampled_from(["s", "ms", "us", "ns"]))
def test_the_unit_is_seen_by_the_size(seconds: float, unit: str) -> None:
    factor = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    assert parse_moment(repr(seconds * factor)) == pytest.approx(seconds)
    assert parse_moment(repr(seconds * factor), unit) == pytest.approx(seconds)

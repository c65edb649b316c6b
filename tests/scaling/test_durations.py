"""Go durations mean here what they mean to Go and to the API server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import BadInput
from cotenant.core.units import format_duration, parse_duration
from cotenant.scaling.durations import Span, read_duration, read_threshold


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("15m", 900), ("1h30m", 5400), ("1h0m0s", 3600), ("800ms", 0.8), ("1.5h", 5400), (".5s", 0.5)),
        *(("1.s", 1), ("250us", 0.00025), ("250µs", 0.00025), ("5ns", 5e-9), ("0s", 0)),
    ],
)
def test_what_go_writes_is_read(text: str, seconds: float):
    assert read_duration(text, "f") == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1d", "f: '1d' counts in days, which Go durations do not: write 24h for 1d"),
        (" 5s", "f: ' 5s' begins or ends with a space: write 5s"),
        ("15", "did you mean 15s?"),
        ("-5s", "f: '-5s' is not a duration"),
        ("15 minutes", "f: '15 minutes' is not a duration: write it like 90s, 10m"),
        ("500ms", "f: '500ms' is not from 1s to 1m"),
        ("61s", "f: '61s' is not from 1s to 1m"),
    ],
)
def test_what_is_refused_is_answered_with_the_field_and_the_remedy(text: str, sentence: str):
    with pytest.raises(BadInput) as refused:
        read_duration(text, "f", Span(1, 60))
    assert sentence in str(refused.value)


def test_a_threshold_may_be_learned():
    assert read_threshold("auto", "f") == "auto"
    assert read_threshold("15m", "f") == 900
    with pytest.raises(BadInput, match="f: '0s' is not from 1s to 8760h, or auto"):
        read_threshold("0s", "f")


@given(st.integers(0, 10**9))
def test_what_is_formatted_is_read_again(milliseconds: int):
    assert parse_duration(format_duration(milliseconds / 1000), "f") == pytest.approx(milliseconds / 1000)
    assert "d" not in format_duration(milliseconds / 1000)

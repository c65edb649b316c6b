import re
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.core.mode import DEFAULT_MODE, MODES, parse_mode

HEADER = Path(__file__).parents[2] / "csrc" / "include" / "cotenant_slot.h"


def test_modes_have_the_numbers_of_the_slots_header():
    numbers = dict(re.findall(r"COT_(OBSERVE|WARN|ENFORCE) = (\d)", HEADER.read_text()))
    assert {mode: str(number) for number, mode in enumerate(MODES)} == {
        name.lower(): number for name, number in numbers.items()
    }


def test_the_default_is_the_strictest():
    assert MODES[-1] == DEFAULT_MODE


@pytest.mark.parametrize("text", ["warn", " warn ", "warn\n"])
def test_a_mode_is_read_with_blanks_around_it(text):
    assert parse_mode(text, "--enforce") == "warn"


@pytest.mark.parametrize("text", ["", "Warn", "warning", "en\u200bforce", "x" * 10_000])
def test_anything_else_is_refused_with_what_may_be_written(text):
    with pytest.raises(BadInput, match=r"^--enforce: '.*' is not one of observe, warn, enforce$") as refused:
        parse_mode(text, "--enforce")
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 200

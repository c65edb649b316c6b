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


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_read_as_it_is_written(mode):
    assert parse_mode(mode, "--enforce") == mode


@pytest.mark.parametrize("text", [" observe", "observe ", "observe\n", "\tobserve", "\u00a0observe"])
def test_a_mode_with_white_space_is_refused_since_the_policy_compares_the_exact_text(text):
    """The policy `cotenant-modes` lets any text pass that is not a mode. If one were read as a mode here, a pod
    could weaken what its namespace enforces.
    """
    with pytest.raises(BadInput, match="is not one of observe, warn, enforce"):
        parse_mode(text, "annotation cotenant.dev/enforce")


@pytest.mark.parametrize("text", ["", "Warn", "warning", "en\u200bforce", "x" * 10_000])
def test_anything_else_is_refused_with_what_may_be_written(text):
    with pytest.raises(BadInput, match=r"^--enforce: '.*' is not one of observe, warn, enforce$") as refused:
        parse_mode(text, "--enforce")
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 200

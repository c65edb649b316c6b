"""Faults as they are written."""

from __future__ import annotations

import pytest

from cotenant.core.errors import BadInput
from cotenant.simulate.scaling.faults import Fault, Kind, parse_fault


def test_a_fault_has_a_begin_and_an_end() -> None:
    assert parse_fault("poison@10m+90s") == Fault(Kind.POISON, 600, 690)
    assert parse_fault("crash-loop@30") == Fault(Kind.CRASH_LOOP, 30, 330)
    assert 689.9 in parse_fault("poison@10m+90s")
    assert 690 not in parse_fault("poison@10m+90s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fire@10m", "'fire' is not known; there are missing, stuck"),
        ("poison", "has no time: write poison@10m"),
        ("poison@soon", "'soon' is not a duration"),
        ("poison@10m+0", "lasts no time"),
        ("poison@10m+nan", "not between 0 and 366 days"),
        ("poison@-5", "not between 0 and 366 days"),
    ],
)
def test_a_bad_fault_is_refused_with_a_remedy(text: str, said: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_fault(text)
    assert said in str(raised.value)

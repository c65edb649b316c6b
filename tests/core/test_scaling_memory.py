"""The memory of a scaler: what is stored can be read, and whatever else is stored does no harm."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest
from core.scaling_world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.idle import IdlePolicy
from cotenant.core.scaling import Memory, Sample, ScalingPolicy, decide

POLICY = ScalingPolicy(minimum=0, maximum=20, service=1.0, idle=IdlePolicy("auto"))


def lived() -> Memory:
    messages = [(n * 0.3, 1.0) for n in range(1000)] + [(1500 + n * 40.0, 1.0) for n in range(20)]
    return World(POLICY, messages, ready=2).run(2400).memory


LIVED = lived()


def stored(**changed: object) -> dict[str, Any]:
    return LIVED.to_json() | changed


def test_it_is_the_same_after_json() -> None:
    text = json.dumps(LIVED.to_json(), allow_nan=False)
    assert Memory.from_json(json.loads(text)) == LIVED
    assert LIVED.clock > 0


def test_a_writer_that_drops_the_fraction_of_whole_numbers_changes_nothing() -> None:
    """As the API server does: 5.0 comes back as 5."""

    def dropped(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: dropped(each) for key, each in value.items()}
        if isinstance(value, list):
            return [dropped(each) for each in value]
        return int(value) if float(value).is_integer() else value

    assert Memory.from_json(dropped(LIVED.to_json())) == LIVED


def test_its_keys_are_always_the_same_and_nothing_is_null() -> None:
    """A merge patch takes null, and knows no missing key, as "delete"."""
    assert Memory().to_json().keys() == LIVED.to_json().keys()
    assert "null" not in json.dumps(Memory().to_json())


@pytest.mark.parametrize(
    "damaged", [None, 5, "text", [], {}, {"version": 0}, {"version": 1}, {"version": "1"}]
)
def test_what_is_no_memory_gives_a_fresh_one(damaged: object) -> None:
    assert Memory.from_json(damaged) == Memory()


@pytest.mark.parametrize("key", sorted(LIVED.to_json()))
@pytest.mark.parametrize(
    "value",
    [None, "5", True, nan, inf, -1e300, 10**400, [nan], [None], [[1]], {}, [1.0] * 100_000, -7, [5, 4, 3]],
)
def test_a_damaged_field_gives_a_fresh_memory(key: str, value: object) -> None:
    read = Memory.from_json(stored(**{key: value}))
    assert read == Memory() or read.to_json()[key] == value
    goes_on(read)


@given(
    st.dictionaries(
        st.sampled_from(sorted(LIVED.to_json())),
        st.one_of(
            st.floats(),
            st.integers(),
            st.lists(st.floats(0, 1e4), max_size=20),
            st.lists(st.floats(0, 3000), max_size=20, unique=True).map(sorted),
        ),
        max_size=4,
    )
)
@settings(deadline=None)
def test_whatever_was_stored_decisions_go_on(changed: dict[str, object]) -> None:
    goes_on(Memory.from_json(stored(**changed)))


def goes_on(memory: Memory) -> None:
    """What was read can be decided with, and a scaler that is stored wrongly comes right."""
    for number in range(30):
        sample = Sample(backlog=number, arrived=9000 + number, completed=9000, in_flight=1, active=1, ready=2)
        decision = decide(POLICY, memory, sample, 5000.0 + 5 * number)
        assert 0 <= decision.replicas <= 20
        memory = Memory.from_json(decision.memory.to_json())
        assert memory == decision.memory


def test_it_stays_small_however_long_it_runs() -> None:
    policy = ScalingPolicy(minimum=1, maximum=1000, poll=0.1, service=3600.0)
    memory = Memory()
    for number in range(6000):
        count = number * 7 + number % 13
        sample = Sample(
            backlog=number % 17, arrived=count, completed=count - number % 17, in_flight=9, active=9, ready=9
        )
        memory = decide(policy, memory, sample, 1e9 + number * (0.1 if number < 3000 else 7.3)).memory
    assert len(json.dumps(memory.to_json())) < 12 * 1024

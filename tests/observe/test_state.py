"""What servers and agents write at /state is read back as it was; anything else is refused or made valid."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.observe.state import AgentState, Charge, GpuState, Hold, ServerState, SlotState, encode

SLOT = SlotState("slot-0001", "u", "web", "a", "main", "enforce", {"GPU-0": 4}, {"GPU-0": 1}, held=True)
AGENT = AgentState(
    "1.0", ("no driver",), (SLOT,), {"slot-0001": ("web/a/main",)}, (GpuState("GPU-0", 0, 16, 1, "lost"),)
)
SERVER = ServerState(True, {"u": Charge("n1", {"GPU-0": 4})}, {"v": Hold("n1", ("GPU-1",))}, ("v", "w"))


@pytest.mark.parametrize("state", [AGENT, AgentState(), SERVER, ServerState()])
def test_what_is_written_is_read_back(state):
    assert msgspec.json.decode(encode(state), type=type(state)) == state


@pytest.mark.parametrize(
    "told",
    [
        {"slots": "x"},
        {"slots": [None]},
        {"slots": [{"limits": {"GPU-1": "much"}}]},
        {"slots": [{"limits": {"GPU-1": -1}}]},
        {"slots": [{"limits": {"GPU-1": 2**80}}]},
        {"slots": [{"limits": {f"GPU-{at}": 1 for at in range(100)}}]},
        {"slots": [{"pod": "x" * 1000}]},
        {"kubelet": ["x"]},
        {"kubelet": {"slot-0000": ["x" * 2000]}},
        {"waits": 7},
        {"waits": ["x"] * 1000},
        {"waits": ["x" * 10_000]},
        {"cards": [{"used": 1e300}]},
    ],
)
def test_what_makes_no_sense_or_has_no_end_is_refused_as_it_is_read(told):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(told), type=AgentState)


def test_what_another_version_writes_besides_is_ignored():
    told = msgspec.json.encode({"version": "9", "new": [1], "slots": []})
    assert msgspec.json.decode(told, type=AgentState) == AgentState("9")


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(AgentState.__struct_fields__), inner)
    ),
)


@given(json | st.dictionaries(st.sampled_from(AgentState.__struct_fields__), json))
def test_any_json_is_a_valid_state_or_an_error(told):
    try:
        read = msgspec.json.decode(msgspec.json.encode(told), type=AgentState)
    except msgspec.DecodeError:
        return
    assert msgspec.json.decode(encode(read), type=AgentState) == read

"""A specification that is not valid is answered with every fault, each with its field and its remedy."""

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from cotenant.core.errors import BadInput
from cotenant.scaling.reading import MOST_PROBLEMS, read_specification


class Inner(Struct, frozen=True, kw_only=True, rename="camel"):
    first_name: Annotated[str, Meta(min_length=1, max_length=5)]
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5

    def __post_init__(self) -> None:
        if self.first_name == "nil":
            raise BadInput("firstName: nil is nobody's name: give another one")
        if self.first_name == "all":
            raise BadInput("one at a time")


class Outer(Struct, frozen=True, kw_only=True, rename="camel"):
    inner: Inner
    size: Annotated[int, Meta(ge=1, le=9)] = 1
    mode: Literal["act", "observe"] = "act"
    names: Annotated[tuple[str, ...], Meta(max_length=2)] = ()
    labels: dict[str, str] = {}
    on: bool = False
    other: Inner | None = None


def faults(data: Any) -> list[str]:
    with pytest.raises(BadInput) as refused:
        read_specification(Outer, data)
    return str(refused.value).splitlines()


def test_all_fields_are_read():
    read = read_specification(
        Outer,
        {
            "inner": {"firstName": "ada", "share": 1},
            "size": 3,
            "mode": "observe",
            "names": ["a", "b"],
            "labels": {"k": "v"},
            "on": True,
            "other": None,
        },
    )
    assert read == Outer(
        inner=Inner(first_name="ada", share=1),
        size=3,
        mode="observe",
        names=("a", "b"),
        labels={"k": "v"},
        on=True,
    )


def test_every_fault_is_reported_at_once():
    data = {
        "inner": {"firstname": "ada"},
        "size": 10,
        "mode": "akt",
        "names": ["a", 2, "c"],
        "labels": [],
        "on": "yes",
    }
    assert faults(data) == [
        "spec.inner.firstname: there is no such field: did you mean firstName?",
        "spec.inner.firstName: this field is required",
        "spec.size: 10 is not from 1 to 9",
        "spec.mode: 'akt' is not one of act, observe",
        'spec.names[1]: 2 is not a text: put it in quotes: "2"',
        "spec.labels: [] is not an object",
        "spec.on: 'yes' is not true or false",
    ]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (None, "spec: None is not an object: give its fields: inner, size, mode, names, labels, on, other"),
        ({}, "spec.inner: this field is required"),
        ({"inner": None}, "spec.inner: this field is required"),
        ({"inner": 5}, "spec.inner: 5 is not an object: give its fields: firstName, share"),
        ({"inner": {"firstName": "nil"}}, "spec.inner.firstName: nil is nobody's name: give another one"),
        ({"inner": {"firstName": "all"}}, "spec.inner: one at a time"),
        ({"inner": {"firstName": ""}}, "spec.inner.firstName: '' has 0 characters; it needs at least 1"),
        (
            {"inner": {"firstName": "x" * 6}},
            "spec.inner.firstName: it has 6 characters; at most 5 are allowed",
        ),
        ({"inner": {"firstName": "a"}, "size": True}, "spec.size: True is not a whole number"),
        ({"inner": {"firstName": "a"}, "size": 1.0}, "spec.size: 1.0 is not a whole number"),
        (
            {"inner": {"firstName": "a", "share": float("nan")}},
            "spec.inner.share: nan is not from 0 to 1",
        ),
        ({"inner": {"firstName": "a"}, "names": "a"}, "spec.names: 'a' is not a list"),
    ],
)
def test_a_fault_is_one_sentence(data: Any, fault: str):
    assert faults(data) == [fault]


def test_what_is_quoted_is_cut_and_the_list_ends():
    hostile = {"k" * 10_000 + "\x1b": 1, **{f"field{at}": 1 for at in range(99)}}
    found = faults(hostile)
    assert len(found) == MOST_PROBLEMS + 1
    assert max(map(len, found)) < 300
    assert found[-1] == f"and {101 - MOST_PROBLEMS} more"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["inner", "size", "mode", "names", "labels", "on", "other"]), JSON))
def test_whatever_is_sent_is_read_or_refused(data: dict[str, Any]):
    try:
        read = read_specification(Outer, data)
    except BadInput:
        return
    assert isinstance(read, Outer)

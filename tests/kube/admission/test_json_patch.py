"""A patch makes exactly the one of the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.builders import applied

from cotenant.kube.admission.json_patch import json_patch


def patch(old: Any, new: Any) -> list[Any]:
    return list(json_patch(old, new))


def test_what_is_the_same_needs_nothing() -> None:
    assert patch({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) == []


def test_only_what_differs_is_named() -> None:
    old = {"spec": {"list": [{"name": "a"}, {"name": "b", "x": 1}], "gone": 1}}
    new = {"spec": {"list": [{"name": "a"}, {"name": "b", "x": 2, "y": 3}]}}
    assert patch(old, new) == [
        {"op": "remove", "path": "/spec/gone"},
        {"op": "replace", "path": "/spec/list/1/x", "value": 2},
        {"op": "add", "path": "/spec/list/1/y", "value": 3},
    ]


@pytest.mark.parametrize(("key", "path"), [("a/b", "/a~1b"), ("a~b", "/a~0b"), ("~1", "/~01"), ("", "/")])
def test_keys_are_escaped(key: str, path: str) -> None:
    assert patch({}, {key: 1}) == [{"op": "add", "path": path, "value": 1}]
    assert patch({key: 1}, {}) == [{"op": "remove", "path": path}]


def test_true_is_not_one() -> None:
    assert patch({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("a/~0", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~01", max_size=2), inner, max_size=3)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.text("a/~01", max_size=2), values, max_size=4)


@given(objects, objects)
def test_any_two_objects(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert json.dumps(applied(old, patch(old, new)), sort_keys=True) == json.dumps(new, sort_keys=True)

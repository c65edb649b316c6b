"""A selector selects the same pods, whether it is read from a spec or from a scale."""

import pytest

from cotenant.core.errors import BadInput
from cotenant.kube.scaler.selector import Selector, parse_selector, read_selector

PODS = [{"app": "a"}, {"app": "a", "tier": "x"}, {"app": "b", "tier": "y"}, {"tier": "x"}, {}]


@pytest.mark.parametrize(
    ("text", "spec", "selected"),
    [
        ("app=a", {"matchLabels": {"app": "a"}}, [0, 1]),
        ("app=a", {"app": "a"}, [0, 1]),
        ("app=a,tier=x", {"matchLabels": {"app": "a", "tier": "x"}}, [1]),
        (
            "app==a, tier",
            {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            [1],
        ),
        (
            "tier in (x,y),app!=b",
            {
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["x", "y"]},
                    {"key": "app", "operator": "NotIn", "values": ["b"]},
                ]
            },
            [1, 3],
        ),
        (
            "app notin (a)",
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
            [2, 3, 4],
        ),
        (
            "!tier,app",
            {
                "matchExpressions": [
                    {"key": "tier", "operator": "DoesNotExist"},
                    {"key": "app", "operator": "Exists"},
                ]
            },
            [0],
        ),
        ("", {}, []),
    ],
)
def test_both_forms_select_the_same(text, spec, selected):
    for selector in (parse_selector(text), read_selector(spec)):
        assert [at for at, labels in enumerate(PODS) if selector.matches(labels)] == selected


def test_only_labels_that_all_have_are_for_the_index():
    assert parse_selector("app=a,tier in (x,y),!z").equal == (("app", "a"),)
    assert Selector().equal == ()


def test_a_text_that_is_no_selector_is_refused():
    with pytest.raises(BadInput, match="cannot be read at"):
        parse_selector("app=(a")

"""The mark of a node whose GPUs are being opened: for whom, and until when."""

import pytest
from kube.operating.clusters import GI, node

from cotenant.dialects import names
from cotenant.kube.nodes.opening_mark import OpeningMark, mark_of, opened_for, write_mark


def marked(text):
    return node("n1", [80 * GI], annotations={names.DEFRAG: text})


def test_what_is_written_is_read_again():
    there = marked(write_mark(["GPU-b", "GPU-a"], 2e9, "uid"))
    mark = mark_of(there)
    assert mark is not None
    assert mark.cards == ("GPU-a", "GPU-b")
    assert not mark.is_over(2e9 - 1)
    assert mark.is_over(2e9)
    assert opened_for([there, node("n2", [80 * GI])], 2e9 - 1) == {"uid"}
    assert opened_for([there], 2e9) == frozenset()


def test_room_for_no_pod_is_opened_for_nobody():
    assert opened_for([marked(write_mark(["GPU-a"], 2e9, ""))], 0.0) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        '{"cards":7}',
        '{"until":"soon"}',
        '{"cards":["a"],"until":"2040-01-01T00:00:00"}',
    ],
)
def test_one_that_is_not_valid_is_over(text):
    mark = mark_of(marked(text))
    assert mark is not None
    assert mark.is_over(0.0)
    assert opened_for([marked(text)], 0.0) == frozenset()


def test_without_an_annotation_there_is_none():
    assert mark_of(node("n1", [80 * GI])) is None
    assert OpeningMark().is_over(0.0)

"""A node's cards are read exactly, or not at all."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.builders import json_values

from cotenant.core.gpu import GPU
from cotenant.core.units import LARGEST
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, Share, SlotGrant, read_grant, write_grant
from cotenant.kube.api.objects import Meta, Node
from cotenant.kube.nodes.gpus import (
    NONE,
    VERSION,
    GpusUnreadable,
    NodeCard,
    NodeGpus,
    drained_of,
    gpus_of_node,
    read_gpus,
    write_drained,
    write_gpus,
)

CARD = {"uuid": "GPU-1", "index": 0, "model": "NVIDIA A100", "memory": 80 * 2**30}

uuids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,60}", fullmatch=True)
cards = st.builds(
    NodeCard,
    uuid=uuids,
    index=st.integers(0, 4096),
    model=st.text(max_size=30),
    memory=st.integers(0, LARGEST),
    parent=st.none() | st.text(max_size=10),
    problem=st.none() | st.text(max_size=10),
    outside=st.integers(0, LARGEST),
)


def node(text: str | None = None, drained: str | None = None) -> Node:
    told = {names.GPUS: text, names.DRAINED: drained}
    return Node(Meta(annotations={key: value for key, value in told.items() if value is not None}))


def told(*cards, **other) -> str:
    return json.dumps({"version": VERSION, "cards": list(cards), **other})


@given(st.lists(cards, max_size=8, unique_by=lambda card: card.uuid), st.booleans())
def test_what_is_written_is_read_back(cards, mps):
    gpus = NodeGpus(VERSION, tuple(cards), "0.1.0", "shim", mps, (names.GPU_MEMORY,))
    assert read_gpus(write_gpus(gpus)) == gpus


@given(uuids)
def test_every_card_that_can_be_read_can_be_granted(uuid):
    """Else it would be chosen, and its grant could not be written."""
    (card,) = read_gpus(told({**CARD, "uuid": uuid})).cards
    grant = PodGrant("pod", (SlotGrant("main", (Share(card.uuid, 1),)),))
    assert read_grant(write_grant(grant), "pod") == grant


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_node_without_the_annotation_has_no_cards(nothing):
    assert read_gpus(nothing) is NONE
    assert gpus_of_node(node(nothing)) == ((), {})


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        "nonsense",
        '{"version": 1}',
        '{"version": 1, "cards": 7}',
        '{"version": 1, "cards": null}',
        '{"version": 1, "cards": [',
        "[" * 100_000,
        '{"version":' * 50_000,
        "\ud800",
        '{"version": true, "cards": []}',
        '{"version": 1.5, "cards": []}',
        told(CARD, CARD),
        told({**CARD, "memory": -1}),
        told({**CARD, "memory": LARGEST + 1}),
        told({**CARD, "memory": "80Gi"}),
        told({**CARD, "memory": 1.5}),
        told({**CARD, "memory": None}),
        told({**CARD, "index": -1}),
        told({**CARD, "index": 10**30}),
        told({**CARD, "uuid": ""}),
        told({**CARD, "uuid": "GPU 1"}),
        told({**CARD, "uuid": "GPU-1,GPU-2"}),
        told({**CARD, "uuid": "GPU-1\n"}),
        told({**CARD, "uuid": "x" * 129}),
        told({**CARD, "model": None}),
        told({**CARD, "outside": -1}),
        told({**CARD, "problem": 1}),
        told({key: value for key, value in CARD.items() if key != "memory"}),
        told(*({**CARD, "uuid": f"GPU-{at}"} for at in range(1000))),
    ],
)
def test_what_is_damaged_is_no_card_at_all(text):
    with pytest.raises(GpusUnreadable, match=names.GPUS):
        gpus_of_node(node(text))


def test_a_newer_version_says_so_whatever_its_shape():
    with pytest.raises(GpusUnreadable, match="version 2"):
        read_gpus('{"version": 2, "cards": {"all": "other"}}')


def test_what_a_newer_agent_adds_is_ignored():
    assert read_gpus(told({**CARD, "nvlink": 1}, weather="fine")).cards[0].memory == 80 * 2**30


@given(st.text(max_size=100) | json_values.map(json.dumps))
def test_nothing_else_is_ever_raised(text):
    with contextlib.suppress(GpusUnreadable):
        gpus_of_node(node(text))


def test_a_sick_or_drained_card_takes_no_new_grant():
    text = told(
        CARD,
        {**CARD, "uuid": "GPU-2", "index": 1, "problem": "XID 79"},
        {**CARD, "uuid": "GPU-3", "index": 2},
    )
    gpus, outside = gpus_of_node(node(text, " GPU-3 ,, GPU-9"))
    assert [(gpu.uuid, gpu.healthy) for gpu in gpus] == [("GPU-1", True), ("GPU-2", False), ("GPU-3", False)]
    assert outside == {}
    assert gpus[0] == GPU("GPU-1", 0, "NVIDIA A100", 80 * 2**30)


def test_memory_outside_grants_is_told_by_card():
    gpus, outside = gpus_of_node(node(told({**CARD, "outside": 5, "parent": "GPU-0"})))
    assert outside == {"GPU-1": 5}
    assert gpus[0].parent == "GPU-0"


def test_drained_cards_are_written_and_read_back():
    assert write_drained([]) is None
    assert write_drained(["b", "a", "b"]) == "a,b"
    assert drained_of(node(drained="a,b")) == {"a", "b"}
    assert drained_of(node()) == frozenset()
    assert drained_of(node(drained=" , ,")) == frozenset()

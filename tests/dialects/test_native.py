"""Our own spelling of demands."""

from __future__ import annotations

import pytest
from dialects.spelling import GI, MI, card, gpu, read

from cotenant.core.demand import SLOT_CARDS, Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.dialects.native import Native
from cotenant.dialects.wishes import read_wishes
from cotenant.hardware import slots

MEMORY = "cotenant.dev/gpu-memory"
COMPUTE = "cotenant.dev/gpu-compute"
WHOLE = "cotenant.dev/gpu"


def test_memory_is_in_bytes_and_written_like_memory() -> None:
    for text in ("4Gi", "4096Mi", str(4 * GI), 4 * GI):
        asked = read({MEMORY: text})
        assert asked is not None
        assert asked.demand == Demand(Memory(bytes=4 * GI))
        assert asked.dialect == "native"


def test_compute_comes_with_memory() -> None:
    asked = read({MEMORY: "4Gi", COMPUTE: "30"})
    assert asked is not None
    assert asked.demand.compute == 30


def test_whole_cards() -> None:
    asked = read({WHOLE: "2"})
    assert asked is not None
    assert asked.demand == Demand(whole=2)


def test_memory_is_spread_over_cards_by_an_annotation_of_the_container() -> None:
    asked = read({MEMORY: "40Gi"}, annotations={"gpu-count.cotenant.dev/main": "2"})
    assert asked is not None
    assert asked.demand.gpus == 2
    assert asked.demand.per_card(80 * GI) == 20 * GI
    other = read({MEMORY: "40Gi"}, annotations={"gpu-count.cotenant.dev/another": "2"})
    assert other is not None
    assert other.demand.gpus == 1


def test_wishes_of_the_pod() -> None:
    asked = read(
        {MEMORY: "4Gi"},
        annotations={
            "cotenant.dev/gpu-model": "A100, H100",
            "cotenant.dev/gpu-uuid": "GPU-1,GPU-2",
            "cotenant.dev/placement": "spread",
        },
    )
    assert asked is not None
    assert asked.demand.models == ("A100", "H100")
    assert asked.demand.uuids == ("GPU-1", "GPU-2")
    assert asked.demand.placement == "spread"


def test_empty_wishes_as_templates_leave_them_are_none() -> None:
    assert read_wishes(
        {
            "cotenant.dev/gpu-model": "",
            "cotenant.dev/gpu-uuid": " ",
            "cotenant.dev/placement": "",
            "cotenant.dev/enforce": "",
            "gpu-count.cotenant.dev/main": "",
        }
    ) == read_wishes({})


@pytest.mark.parametrize("zero", [0, "0", "0Gi"])
def test_zero_is_not_asked(zero: object) -> None:
    assert read({MEMORY: zero, COMPUTE: zero, WHOLE: zero}) is None
    assert read({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}) is None
    assert read({}) is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {MEMORY: "4Gx"},
            "container 'main': cotenant.dev/gpu-memory: '4Gx' is not a quantity: write it like 4Gi",
        ),
        ({MEMORY: "1500m"}, "cotenant.dev/gpu-memory: '1500m' is not a whole number"),
        ({MEMORY: "-4Gi"}, "cotenant.dev/gpu-memory: '-4Gi' is below zero"),
        ({MEMORY: None}, "cotenant.dev/gpu-memory: None is not a quantity"),
        ({COMPUTE: "30"}, "cotenant.dev/gpu-compute: compute comes with memory"),
        ({MEMORY: "4Gi", COMPUTE: "101"}, "cotenant.dev/gpu-compute: 101: each GPU has 100 percent"),
        ({MEMORY: "4Gi", WHOLE: "1"}, "cotenant.dev/gpu: a whole GPU brings all its memory"),
        ({COMPUTE: "50", WHOLE: "1"}, "cotenant.dev/gpu: a whole GPU brings all its memory and compute"),
        ({WHOLE: "2000"}, "cotenant.dev/gpu: 2000 GPUs are more than a container can use"),
        (
            {"cotenant.dev/gpu-mem": "4Gi"},
            "cotenant.dev/gpu-mem is not known: did you mean cotenant.dev/gpu-memory?",
        ),
        ({MEMORY: "4Gi", "cotenant.dev/gpu-cores": "0"}, "cotenant.dev/gpu-cores is not known"),
        (
            {"cotenant.dev/bananas": "1"},
            "cotenant.dev/bananas is not known: take one of cotenant.dev/gpu-memory",
        ),
        (
            {"cotenant.dev/gpu-slot": "1"},
            "cotenant.dev/gpu-slot: this is added for you: leave it out, and ask for",
        ),
        ({MEMORY: "1Gi", "cotenant.dev/gpu-slot": "2"}, "cotenant.dev/gpu-slot: 2: this is added for you"),
    ],
)
def test_what_makes_no_sense_is_refused_by_container_and_resource(
    limits: dict[str, object], words: str
) -> None:
    with pytest.raises(BadInput) as error:
        read(limits)
    assert str(error.value).startswith("container 'main': ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        (
            {"gpu-count.cotenant.dev/main": "zwei"},
            "annotation gpu-count.cotenant.dev/main: 'zwei' is not a quantity",
        ),
        (
            {"gpu-count.cotenant.dev/main": "0"},
            "annotation gpu-count.cotenant.dev/main: '0' is not a number of GPUs",
        ),
        ({"gpu-count.cotenant.dev/main": "-1"}, "annotation gpu-count.cotenant.dev/main: '-1' is below zero"),
        ({"gpu-count.cotenant.dev/main": "5000"}, "'5000' is not a number of GPUs from 1 to 16"),
        (
            {"cotenant.dev/gpu-model": "A100,,H100"},
            "annotation cotenant.dev/gpu-model: 'A100,,H100' has an empty name",
        ),
        ({"cotenant.dev/gpu-uuid": ","}, "annotation cotenant.dev/gpu-uuid: ',' has an empty name"),
        (
            {"cotenant.dev/gpu-uuid": ",".join(f"GPU-{at}" for at in range(257))},
            "annotation cotenant.dev/gpu-uuid: it names 257, at most 256 can be named",
        ),
        (
            {"cotenant.dev/placement": "best"},
            "annotation cotenant.dev/placement: 'best' is not one of frag, binpack",
        ),
        (
            {"cotenant.dev/enforce": "no"},
            "annotation cotenant.dev/enforce: 'no' is not one of observe, warn, enforce",
        ),
    ],
)
def test_wishes_that_make_no_sense_are_refused_by_annotation(annotations: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput) as error:
        read({MEMORY: "4Gi"}, annotations=annotations)
    assert words in str(error.value)


def test_too_little_memory_for_so_many_cards_is_refused() -> None:
    with pytest.raises(BadInput, match=r"cotenant.dev/gpu-memory: 1 bytes cannot be spread over 2 GPUs"):
        read({MEMORY: "1"}, annotations={"gpu-count.cotenant.dev/main": "2"})


def test_a_container_asks_for_no_more_cards_than_its_slot_can_limit() -> None:
    assert SLOT_CARDS == slots.CARDS
    count = "gpu-count.cotenant.dev/main"
    for limits, wished in (({WHOLE: "16"}, {}), ({MEMORY: "16Gi"}, {count: "16"})):
        asked = read(limits, annotations=wished)
        assert asked is not None
        assert asked.demand.count == 16
    for limits, wished in (({WHOLE: "17"}, {}), ({MEMORY: "17Gi"}, {count: "17"})):
        with pytest.raises(BadInput, match=r"17.* 16"):
            read(limits, annotations=wished)


def test_whole_cards_are_not_counted_twice() -> None:
    with pytest.raises(BadInput, match=r"whole GPUs are counted by cotenant.dev/gpu itself"):
        read({WHOLE: "2"}, annotations={"gpu-count.cotenant.dev/main": "2"})


@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        ({MEMORY: "4Gi"}, {MEMORY: "2Gi"}, "the request is '2Gi' and the limit '4Gi': they must be the same"),
        ({}, {MEMORY: "2Gi"}, "the request is '2Gi' and the limit is missing: they must be the same"),
        ({MEMORY: "4Gi"}, {MEMORY: "0"}, "the request is '0' and the limit '4Gi'"),
        ({MEMORY: "4Gi"}, {MEMORY: "viel"}, "'viel' is not a quantity"),
    ],
)
def test_a_request_is_its_limit(limits: dict[str, object], requests: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as error:
        read(limits, requests=requests)
    assert f"container 'main': {MEMORY}: " in str(error.value)
    assert words in str(error.value)


def test_a_request_may_be_written_otherwise_if_it_is_the_same() -> None:
    asked = read({MEMORY: "4Gi"}, requests={MEMORY: "4096Mi", "cpu": "1"})
    assert asked is not None
    assert asked.demand.memory == Memory(bytes=4 * GI)


def test_a_node_shows_bytes_percent_and_cards() -> None:
    node = Native().capacity([gpu(0, 80 * GI), gpu(1, 11178 * MI)])
    assert node == {MEMORY: 80 * GI + 11178 * MI, COMPUTE: 200, WHOLE: 2}


def test_what_is_written_reads_as_the_same_demand() -> None:
    for demand in (Demand(Memory(bytes=4 * GI)), Demand(Memory(bytes=1), compute=7), Demand(whole=3)):
        asked = read(Native().write(demand))
        assert asked is not None
        assert asked.demand == demand


def test_containers_see_their_cards_by_uuid() -> None:
    asked = read({MEMORY: "4Gi"})
    assert asked is not None
    cards = [card(0, 80 * GI, 2 * GI), card(3, 80 * GI, 2 * GI)]
    assert Native().of_container(asked, cards) == {"devices.cotenant.dev/main": "GPU-0,GPU-3"}
    assert Native().of_pod([], 1) == {}

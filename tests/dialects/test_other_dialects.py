"""Demands in the words of other systems, and nodes as those systems show them."""

from __future__ import annotations

import pytest
from dialects.spelling import GI, MI, gpu, read

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects
from cotenant.dialects.volcano import Volcano

ALL = Dialects(nvidia=Nvidia(enabled=True))


def demand_of(limits: dict[str, object], dialects: Dialects = ALL, **annotations: str) -> Demand:
    asked = read(limits, dialects, annotations=annotations)
    assert asked is not None
    return asked.demand


def test_aliyun_counts_in_gib_unless_it_is_told_mib() -> None:
    assert demand_of({"aliyun.com/gpu-mem": "3"}) == Demand(Memory(bytes=3 * GI))
    mib = Dialects(aliyun=Aliyun(unit="MiB"))
    assert demand_of({"aliyun.com/gpu-mem": "3803"}, mib) == Demand(Memory(bytes=3803 * MI))


def test_volcano_counts_in_mib_times_a_factor() -> None:
    assert demand_of({"volcano.sh/gpu-memory": 1024}) == Demand(Memory(bytes=GI))
    tens = Dialects(volcano=Volcano(memory_factor=10))
    assert demand_of({"volcano.sh/gpu-memory": 103}, tens) == Demand(Memory(bytes=1030 * MI))


def test_whole_cards_by_number() -> None:
    assert demand_of({"volcano.sh/gpu-number": 2}) == Demand(whole=2)
    assert demand_of({"nvidia.com/gpu": "4"}) == Demand(whole=4)


def test_nvidia_is_off_until_it_is_switched_on() -> None:
    assert read({"nvidia.com/gpu": "1"}) is None
    assert read({"nvidia.com/gpu": "1"}, ALL) is not None


def test_a_dialect_that_is_off_is_not_read() -> None:
    off = Dialects(aliyun=Aliyun(enabled=False), volcano=Volcano(enabled=False))
    assert read({"aliyun.com/gpu-mem": "nonsense", "volcano.sh/gpu-memory": "4"}, off) is None
    assert set(off.capacity([gpu(0, GI)])) == {
        "cotenant.dev/gpu-memory",
        "cotenant.dev/gpu-compute",
        "cotenant.dev/gpu",
    }


def test_native_wishes_hold_in_every_dialect() -> None:
    asked = read(
        {"volcano.sh/gpu-memory": 1024},
        annotations={"cotenant.dev/gpu-model": "T4", "gpu-count.cotenant.dev/main": "2"},
    )
    assert asked is not None
    assert asked.demand == Demand(Memory(bytes=GI), gpus=2, models=("T4",))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"aliyun.com/gpu-mem": "x"}, "aliyun.com/gpu-mem: 'x' is not a quantity: write it like 1"),
        ({"aliyun.com/gpu-mem": "-3"}, "aliyun.com/gpu-mem: '-3' is below zero"),
        ({"aliyun.com/gpu-mem": "1500m"}, "aliyun.com/gpu-mem: '1500m' is not a whole number"),
        ({"aliyun.com/gpu-mem": "8E"}, "bytes are more than there can be: ask for less"),
        (
            {"aliyun.com/gpu-count": "1"},
            "aliyun.com/gpu-count: nodes show this, containers do not ask for it",
        ),
        ({"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-count": "1"}, "aliyun.com/gpu-count: nodes show this"),
        (
            {"volcano.sh/gpu-memory": "1", "volcano.sh/gpu-number": "1"},
            "leave out either volcano.sh/gpu-number or",
        ),
        (
            {"volcano.sh/gpu-number": "1025"},
            "volcano.sh/gpu-number: 1025 GPUs are more than a container can use",
        ),
        ({"nvidia.com/gpu": "0.5"}, "nvidia.com/gpu: '0.5' is not a whole number"),
        (
            {"aliyun.com/gpu-mem": "3", "cotenant.dev/gpu-memory": "3Gi"},
            "aliyun.com/gpu-mem and cotenant.dev/gpu-memory ask for the same thing twice: leave all but one of them out",
        ),
        ({"aliyun.com/gpu-mem": "3", "cotenant.dev/gpu": "1"}, "aliyun.com/gpu-mem and cotenant.dev/gpu ask"),
        (
            {"aliyun.com/gpu-mem": "3", "cotenant.dev/gpu-compute": "30"},
            "cotenant.dev/gpu-compute: compute comes with",
        ),
        (
            {"aliyun.com/gpu-mem": "3", "volcano.sh/gpu-memory": "3"},
            "aliyun.com/gpu-mem and volcano.sh/gpu-memory ask",
        ),
        (
            {"nvidia.com/gpu": "1", "volcano.sh/gpu-number": "1"},
            "nvidia.com/gpu and volcano.sh/gpu-number ask",
        ),
        ({"nvidia.com/gpu": "1", "cotenant.dev/gpu": "1"}, "cotenant.dev/gpu and nvidia.com/gpu ask"),
    ],
)
def test_what_makes_no_sense_is_refused_by_container_and_resource(
    limits: dict[str, object], words: str
) -> None:
    with pytest.raises(BadInput) as error:
        read(limits, ALL)
    assert str(error.value).startswith("container 'main': ")
    assert words in str(error.value)


def test_with_a_slot_the_native_figures_count() -> None:
    """They were written at admission, perhaps for a larger init container, perhaps under other settings."""
    limits = {"aliyun.com/gpu-mem": "3", "cotenant.dev/gpu-memory": "5Gi", "cotenant.dev/gpu-slot": "1"}
    for dialects in (ALL, Dialects(aliyun=Aliyun(unit="MiB"))):
        asked = read(limits, dialects)
        assert asked is not None
        assert asked.demand == Demand(Memory(bytes=5 * GI))
        assert asked.dialect == "aliyun"
        assert asked.asked == {"aliyun.com/gpu-mem": 3}
    off = read(limits, Dialects(aliyun=Aliyun(enabled=False)))
    assert off is not None
    assert off.dialect == "native"
    assert off.demand == Demand(Memory(bytes=5 * GI))


def test_nodes_look_as_the_guides_print_them() -> None:
    eight = [gpu(index, 11178 * MI) for index in range(8)]
    assert Volcano().capacity(eight) == {"volcano.sh/gpu-memory": 89424, "volcano.sh/gpu-number": 8}
    assert Aliyun(unit="MiB").capacity([gpu(0, 7606 * MI)]) == {
        "aliyun.com/gpu-mem": 7606,
        "aliyun.com/gpu-count": 1,
    }
    assert Nvidia().capacity(eight) == {"nvidia.com/gpu": 8}


def test_a_card_is_rounded_down_by_itself() -> None:
    cards = [gpu(0, 7606 * MI), gpu(1, 7606 * MI)]
    assert Aliyun().capacity(cards) == {"aliyun.com/gpu-mem": 14, "aliyun.com/gpu-count": 2}
    assert Volcano(memory_factor=1000).capacity(cards)["volcano.sh/gpu-memory"] == 14


def test_a_node_without_cards_shows_zeros() -> None:
    assert set(ALL.capacity([]).values()) == {0}


@pytest.mark.parametrize("factor", [0, -1, 2**21])
def test_a_factor_that_makes_no_sense_is_refused(factor: int) -> None:
    with pytest.raises(BadInput, match=f"memory_factor: {factor} is not a number of MiB"):
        Volcano(memory_factor=factor)


def test_every_dialect_has_names_of_its_own() -> None:
    names = [dialect.name for dialect in ALL.on]
    assert names == ["native", "aliyun", "volcano", "nvidia"]
    resources = [name for dialect in ALL.on for name in dialect.resources]
    assert len(set(resources)) == len(resources)
    assert ALL.resources == frozenset(resources)

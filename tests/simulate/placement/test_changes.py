"""What-ifs: nodes that are added, and pods that ask for what was advised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.loss import PLENTY, Spare
from cotenant.simulate.placement.adding import add, parse_added
from cotenant.simulate.placement.advised import advised, read_advice
from cotenant.simulate.placement.trace import CARD
from cotenant.simulate.placement.workload import RecordedPod, Recording, SimulatedNode, SimulatedPod

GI = 2**30
KNOWN = {
    "a100-40gb": ("NVIDIA A100-SXM4-40GB", 39 * GI),
    "a100-80gb": ("NVIDIA A100-SXM4-80GB", 79 * GI),
    "h100-80gb": ("NVIDIA H100 80GB HBM3", 79 * GI),
}


def node(name: str, model: str, cards: int, cpu: int, size: int = 16 * GI) -> SimulatedNode:
    gpus = tuple(GPU(f"{name}-{at}", at, model, size) for at in range(cards))
    return SimulatedNode(name, gpus, Spare(cpu, cpu * GI, 100 + cards))


THERE = Recording((node("a", "Tesla T4", 2, 8000), node("b", "NVIDIA L4", 4, 64_000)), ())


def added(text: str, recording: Recording = THERE, has: Spare | None = None) -> list[SimulatedNode]:
    return add(recording, [parse_added(text)], KNOWN, has or Spare())


def test_a_spec_is_a_node_with_cards_or_several_such_nodes() -> None:
    (one,) = added("4xA100-80GB")
    assert [(gpu.model, gpu.memory) for gpu in one.gpus] == [("NVIDIA A100-SXM4-80GB", 79 * GI)] * 4
    several = added("3x8xH100")
    assert [(each.name, len(each.gpus)) for each in several] == [(f"added-1-{at}", 8) for at in (1, 2, 3)]
    assert len({gpu.uuid for each in several for gpu in each.gpus}) == 24
    assert [(gpu.model, gpu.memory) for gpu in added("1xMI300X:192Gi")[0].gpus] == [("MI300X", 192 * GI)]
    assert added("2x24GiB")[0].gpus[1].memory == 24 * GI


def test_cpu_and_memory_for_a_card_are_those_of_nodes_with_the_same_model_or_of_all() -> None:
    assert added("4xT4")[0].has == Spare(16_000, 16_000 * GI, 102)
    assert added("4xT4")[0].gpus[0].model == "Tesla T4", "the name that wishes match"
    assert added("3xH100")[0].has == Spare(36_000, 36_000 * GI, 104)
    assert added("3xH100", has=Spare(5, 6))[0].has == Spare(5, 6, 104)
    unknown = Recording((SimulatedNode("a", THERE.nodes[0].gpus, Spare()),), ())
    assert added("3xH100", unknown)[0].has == Spare(PLENTY, PLENTY, 110)


def test_a_card_is_one_card_where_sizes_are_not_known() -> None:
    trace = Recording((node("a", "P100", 2, 8000, CARD),), (), sized=False)
    assert [gpu.memory for gpu in added("1xANYTHING", trace)[0].gpus] == [CARD]


def test_names_of_nodes_stay_unique() -> None:
    again = Recording((*THERE.nodes, node("added-1-1", "X", 1, 1)), ())
    assert added("1xT4", again)[0].name not in {each.name for each in again.nodes}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A100-80GB", "is not understood: write 4xA100-80GB for a node with 4 cards"),
        ("0xT4", "has 0 cards in a node: write 1 to 256"),
        ("0x4xT4", "is 0 nodes: write 1 to"),
        ("300xT4", "has 300 cards in a node"),
        ("4xA100", "may be NVIDIA A100-SXM4-40GB or NVIDIA A100-SXM4-80GB: write more of the name"),
        ("4xMI300X", "the size of such a card is not known: write it after a colon"),
        ("4xMI300X:much", "'much' is not an amount of memory"),
        ("4xMI300X:48", "'48' is 48 bytes"),
        ("99999999x8xT4", "is 99999999 nodes"),
        ("4x" + "x" * 500, "names no model"),
    ],
)
def test_what_cannot_be_added_is_said_with_a_remedy(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as error:
        added(text)
    assert str(error.value).startswith("add: ")


def pod(workload: str, *demands: Demand, version: str = "", container: str = "main") -> RecordedPod:
    return RecordedPod(SimulatedPod(demands, 1, 1), workload, version, (container,) * len(demands))


def advice(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text(json.dumps({"source": "x", "advice": [{"evidence": {}, **each} for each in rows]}))
    return str(path)


def row(workload: str, size: int | None, gpus: int = 1, **others: str) -> dict[str, Any]:
    size = None if size is None else size * GI
    return {"workload": workload, "container": "main", "version": "", "advised": size, "gpus": gpus, **others}


def in_all(size: int, gpus: int = 1) -> Demand:
    return Demand(Memory(bytes=size * GI), gpus)


def test_advised_sizes_replace_those_that_are_asked_for(tmp_path: Path) -> None:
    path = advice(
        tmp_path / "advice.json",
        row("web", 3),
        row("chat", 5, version="v1"),
        row("chat", 7, version="v2"),
        row("split", 12, 2),
        row("refused", None),
        row("train", 30),
        row("many", 1),
        row("many", 2, container="other"),
    )
    pods = [
        pod("web", in_all(8)),
        pod("chat", in_all(8), version="v1"),
        pod("chat", in_all(8), version="v3"),
        pod("split", in_all(20, 2)),
        pod("split", in_all(20, 4)),
        pod("refused", in_all(8)),
        pod("train", Demand(whole=2)),
        pod("many", in_all(8), container="other"),
        pod("many", in_all(8), container="third"),
        pod("many", in_all(8), container=""),
        pod("unknown", in_all(8)),
        pod("plain"),
    ]
    changed, count = advised(pods, read_advice(path))
    assert [each.demands[:1] for each in changed] == [
        (in_all(3),),
        (in_all(5),),
        (in_all(7),),
        (in_all(12, 2),),
        (in_all(24, 4),),
        (in_all(8),),
        (in_all(60, 2),),
        (in_all(2),),
        (in_all(8),),
        (in_all(2),),
        (in_all(8),),
        (),
    ]
    assert count == 8


def test_advice_that_is_damaged_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"advice: a\.json advises nothing: more history is needed"):
        read_advice(advice(tmp_path / "a.json", row("web", None)))
    with pytest.raises(
        BadInput,
        match=r"advice: a\.json: Expected `int \| null`, got `str` at `advice\[0\]\.advised`: write it",
    ):
        read_advice(advice(tmp_path / "a.json", row("web", 1) | {"advised": "4Gi"}))

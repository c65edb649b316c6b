"""A demand is either sound or refused with the field and the remedy."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.demand import PLACEMENTS, Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share

GI = 2**30
MEMORY = Memory(bytes=4 * GI)


def test_without_memory_whole_cards_are_meant() -> None:
    assert Demand().whole == 1
    assert Demand(gpus=3).whole == 3
    assert Demand(whole=2).count == 2
    assert Demand(whole=2) == Demand(gpus=2)


def test_memory_is_for_all_cards_and_split_evenly() -> None:
    assert Demand(MEMORY).per_card(80 * GI) == 4 * GI
    assert Demand(MEMORY, gpus=2).per_card(80 * GI) == 2 * GI
    assert Demand(Memory(bytes=10), gpus=3).per_card(80 * GI) == 4


def test_a_percentage_is_of_each_card() -> None:
    half = Demand(Memory(percent=Fraction(50)), gpus=2)
    assert half.per_card(80 * GI) == 40 * GI
    assert half.per_card(16 * GI) == 8 * GI


@given(st.integers(1, 2**50), st.integers(1, 64))
def test_the_parts_cover_the_demand_with_less_than_a_byte_a_card_to_spare(size: int, gpus: int) -> None:
    if size < gpus:
        return
    part = Demand(Memory(bytes=size), gpus=gpus).per_card(2**60)
    assert size <= part * gpus < size + gpus


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": 0}, "gpus: 0"),
        ({"gpus": -1}, "gpus: -1"),
        ({"gpus": True}, "gpus: True"),
        ({"gpus": 1.5}, "gpus: 1.5"),
        ({"gpus": "2"}, "gpus: '2'"),
        ({"gpus": 10**9}, "gpus: 1000000000"),
        ({"whole": -1}, "whole: -1"),
        ({"memory": MEMORY, "compute": 0}, "gpu-compute: 0"),
        ({"memory": MEMORY, "compute": 101}, "gpu-compute: 101"),
        ({"memory": MEMORY, "compute": "30"}, "from 1 to 100"),
        ({"compute": 30}, "leave out --gpu-compute"),
        ({"memory": MEMORY, "whole": 1}, "leave out either --whole or --gpu-memory"),
        ({"memory": 4 * GI}, "gpu-memory: 4294967296"),
        ({"memory": Memory(bytes=1), "gpus": 2}, "gpu-memory: 1 bytes cannot be spread over 2 GPUs"),
        ({"models": ("",)}, "gpu-model"),
        ({"models": "A100"}, "gpu-model"),
        ({"uuids": (" ",)}, "gpu: "),
        ({"uuids": (7,)}, "gpu: "),
        ({"placement": "best"}, "frag, binpack, spread"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as error:
        Demand(**fields)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("wish", "model", "does"),
    [
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("a100-80gb", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("80GB-A100", "NVIDIA A100-SXM4-80GB", False),
        ("T4", "NVIDIA T400", False),
        ("-", "Tesla T4", False),
    ],
)
def test_a_model_is_named_by_its_words(wish: str, model: str, does: bool) -> None:
    assert GPU("u", 0, model, GI).is_model(wish) is does


def test_wishes_narrow_the_cards() -> None:
    card = GPU("GPU-a", 0, "Tesla T4", 16 * GI)
    assert Demand().accepts(card)
    assert Demand(models=("A100", "T4")).accepts(card)
    assert not Demand(models=("A100",)).accepts(card)
    assert not Demand(uuids=("GPU-b",)).accepts(card)
    assert not Demand(models=("A100",), uuids=("GPU-a",)).accepts(card)


demands = st.builds(
    Demand,
    memory=st.integers(64, 2**60).map(lambda size: Memory(bytes=size))
    | st.fractions(Fraction(1, 100), 100).map(lambda percent: Memory(percent=percent)),
    gpus=st.integers(1, 16),
    compute=st.none() | st.integers(1, 100),
    models=st.lists(st.sampled_from(["A100", "T4"]), max_size=2).map(tuple),
    uuids=st.lists(st.sampled_from(["GPU-a", "GPU-b"]), max_size=2).map(tuple),
    placement=st.sampled_from(PLACEMENTS),
) | st.integers(1, 16).map(lambda cards: Demand(whole=cards))


@given(demands)
def test_a_demand_survives_json(demand: Demand) -> None:
    assert Demand.from_json(json.loads(json.dumps(demand.to_json()))) == demand


def test_a_grant_survives_json_with_bytes_as_integers() -> None:
    grant = Grant("job", (Share("GPU-a", 4 * GI, 30), Share("GPU-b", 16 * GI, whole=True)))
    assert Grant.from_json(json.loads(json.dumps(grant.to_json()))) == grant
    assert grant.to_json()["shares"][0]["memory"] == 4 * GI
    assert grant.memory == 20 * GI


def test_a_demand_of_an_older_version_may_lack_fields() -> None:
    assert Demand.from_json({"memory": 4 * GI}) == Demand(MEMORY)


@pytest.mark.parametrize(
    "data",
    [{"memory": "4Gi"}, {"memory": -1}, {"percent": "x"}, {"memory": 1, "percent": "1"}, {"gpus": None}],
)
def test_a_spoilt_demand_is_bad_input(data: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Demand.from_json(data)


def test_values_that_contradict_themselves_cannot_be_made() -> None:
    for make in (
        lambda: GPU("", 0, "T4", 1),
        lambda: GPU("u", 0, "T4", -1),
        lambda: Share("u", 0),
        lambda: Share("u", -1, whole=True),
        lambda: Share("u", 1, 0),
        lambda: Share("u", 1, 101),
        lambda: Grant("", (Share("u", 1),)),
        lambda: Grant("g", ()),
        lambda: Grant("g", (Share("u", 1), Share("u", 2))),
    ):
        with pytest.raises(ValueError):
            make()

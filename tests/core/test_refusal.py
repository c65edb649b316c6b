"""What people are told when there is no room, or never will be."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.placement import impossible, place, why_not
from cotenant.core.refusal import ordinal, waiting

GI, MI = 2**30, 2**20
A = GPU("GPU-a", 0, "A100-80GB", 80 * GI)
B = GPU("GPU-b", 1, "A100-80GB", 80 * GI)
T = GPU("GPU-t", 2, "Tesla T4", 16 * GI)


def gib(size: float, **fields: object) -> Demand:
    return Demand(Memory(bytes=int(size * GI)), **fields)  # type: ignore[arg-type]


def half(**fields: object) -> Demand:
    return Demand(Memory(percent=Fraction(50)), **fields)  # type: ignore[arg-type]


def taken(*gib_free: float, gpus: tuple[GPU, ...] = (A, B, T)) -> Ledger:
    grants = [
        Grant(f"on-{gpu.uuid}", (Share(gpu.uuid, gpu.memory - int(free * GI)),))
        for gpu, free in zip(gpus, gib_free, strict=True)
    ]
    return Ledger(gpus, grants=grants)


@pytest.mark.parametrize(
    ("gpus", "demand", "sentence"),
    [
        (
            (A, B, T),
            gib(100),
            (
                "100Gi asked, the largest GPU has 80Gi (GPU 0, A100-80GB): "
                "ask for less or spread it over 2 GPUs with --gpus 2"
            ),
        ),
        ((A, T), gib(100), "100Gi asked, the largest GPU has 80Gi (GPU 0, A100-80GB): ask for less"),
        (
            (A, B, T),
            gib(20, models=("T4",)),
            "20Gi asked, the largest GPU that matches has 16Gi (GPU 2, Tesla T4): ask for less",
        ),
        (
            (A, B),
            gib(80 + 1 / GI),
            (
                "80.0Gi asked, the largest GPU has 80Gi (GPU 0, A100-80GB): "
                "ask for less or spread it over 2 GPUs with --gpus 2"
            ),
        ),
        (
            (A, B, T),
            gib(200, gpus=2),
            "100Gi on each of 2 GPUs asked, the largest GPU has 80Gi (GPU 0, A100-80GB): ask for less",
        ),
        (
            (A, B, T),
            gib(90, gpus=3),
            "30Gi on each of 3 GPUs asked, only 2 GPUs have that much (GPU 0, 1): ask for less",
        ),
        (
            (A, T),
            gib(34, gpus=2),
            "17Gi on each of 2 GPUs asked, only 1 GPU has that much (GPU 0): ask for less",
        ),
        ((A, B), gib(8, gpus=4), "4 GPUs asked, there are 2: ask for 2 or fewer"),
        ((A,), Demand(whole=2), "2 whole GPUs asked, there is 1: ask for 1 or fewer"),
        ((), Demand(), "1 whole GPU asked, there is none"),
        (
            (A, B, T),
            Demand(whole=2, models=("T4",)),
            "2 whole GPUs asked, there is 1 that matches: ask for 1 or fewer",
        ),
        (
            (A, B, T),
            gib(4, models=("H100", "L4")),
            "model H100 or L4 asked, no such GPU is here: there is A100-80GB, Tesla T4",
        ),
        ((), gib(4, models=("H100",)), "model H100 asked, no such GPU is here: there is no GPU at all"),
        (
            (A, T),
            gib(4, uuids=("GPU-x",)),
            "GPU-x asked, no such GPU is here: there is GPU-a (GPU 0, A100-80GB), GPU-t (GPU 2, Tesla T4)",
        ),
        ((), gib(4, uuids=("GPU-x",)), "GPU-x asked, no such GPU is here: there is none"),
    ],
)
def test_what_can_never_be_says_what_is_there_and_what_to_do(
    gpus: tuple[GPU, ...], demand: Demand, sentence: str
) -> None:
    refusal = impossible(Ledger(gpus), demand)
    assert refusal is not None
    assert str(refusal) == sentence
    assert refusal.never
    assert why_not(Ledger(gpus, {gpu.uuid: gpu.memory for gpu in gpus}), demand) == refusal


def test_the_advice_to_spread_it_is_true() -> None:
    assert impossible(Ledger([A, B, T]), gib(100, gpus=2)) is None


def test_one_unknown_card_among_known_ones_is_a_mistake_too() -> None:
    assert "GPU-x asked" in str(impossible(Ledger([A]), gib(4, uuids=("GPU-a", "GPU-x"))))


@pytest.mark.parametrize(
    ("ledger", "demand", "sentence"),
    [
        (taken(1, 3.25, 2), gib(4), "4Gi asked, largest free room 3.2Gi on GPU 1"),
        (taken(1, 4 - 1 / 64, 2), gib(4), "4Gi asked, largest free room 3.9Gi on GPU 1"),
        (taken(0, 0, 0), gib(4), "4Gi asked, largest free room 0 on GPU 0"),
        (taken(9, 3, 2), gib(4, models=("T4",)), "4Gi asked, largest free room 2Gi on GPU 2"),
        (
            taken(9, 3, 2),
            gib(8, gpus=2),
            "4Gi on each of 2 GPUs asked, only 1 GPU has that much free, largest free room 9Gi on GPU 0",
        ),
        (taken(9, 3, 2), half(), "50% of a GPU asked, largest free room 2Gi of 16Gi on GPU 2"),
        (
            taken(45, 3, 2),
            half(gpus=2),
            (
                "50% of a GPU on each of 2 GPUs asked, only 1 GPU has that much free, "
                "largest free room 45Gi of 80Gi on GPU 0"
            ),
        ),
        (taken(9, 3, 2), Demand(), "1 whole GPU asked, none is unused now"),
        (taken(9, gpus=(A,)), Demand(), "1 whole GPU asked, none is unused now"),
        (
            Ledger([A, B], grants=[Grant("x", (Share("GPU-a", 1),))]),
            Demand(whole=2),
            "2 whole GPUs asked, 1 is unused now",
        ),
        (
            Ledger([A, T], {"GPU-a": 300 * MI}, [Grant("x", (Share("GPU-t", 1),))]),
            Demand(),
            (
                "1 whole GPU asked, none is unused now "
                "(processes outside Cotenant hold 300Mi of GPU 0: ask for memory with --gpu-memory)"
            ),
        ),
        (
            Ledger([A, B], grants=[Grant("x", (Share("GPU-a", GI, 70), Share("GPU-b", GI, 90)))]),
            gib(4, compute=40),
            "4Gi and 40% of the compute asked, at most 30% is free beside that memory, on GPU 0",
        ),
        (Ledger([replace(A, healthy=False)]), gib(4), "4Gi asked, no GPU that matches is healthy"),
        (
            Ledger([replace(A, healthy=False)]),
            Demand(),
            "1 whole GPU asked, no GPU that matches is healthy",
        ),
        (Ledger([replace(A, healthy=False)]), half(), "50% of a GPU asked, no GPU that matches is healthy"),
        (
            Ledger([replace(A, healthy=False), T]),
            gib(20),
            "20Gi asked, largest free room 16Gi on GPU 2 (GPU 0 is sick)",
        ),
    ],
)
def test_what_cannot_be_now_says_what_is_free_and_where(
    ledger: Ledger, demand: Demand, sentence: str
) -> None:
    refusal = why_not(ledger, demand)
    assert place(ledger, demand) is None
    assert refusal is not None
    assert str(refusal) == sentence
    assert not refusal.never


def test_cards_held_for_others_are_named_with_whom_they_are_held_for() -> None:
    ledger = taken(9, 3, 12)
    held = {"GPU-a": "train", "GPU-t": "llm"}
    assert str(why_not(ledger, gib(10), held)) == "10Gi asked, GPU 2 has room but is held for llm"
    assert str(why_not(ledger, gib(4), held)) == (
        "4Gi asked, GPU 2 has room but is held for llm, GPU 0 has room but is held for train"
    )
    assert str(why_not(ledger, gib(20), held)) == "20Gi asked, largest free room 12Gi on GPU 2"
    assert why_not(ledger, gib(3), held) is None


def test_what_could_be_served_has_no_refusal() -> None:
    assert why_not(taken(9, 3, 12), gib(4)) is None
    assert impossible(taken(0, 0, 0), gib(4)) is None


def test_those_who_wait_are_told_their_place() -> None:
    refusal = why_not(taken(1, 3.25, 2), gib(4))
    assert refusal is not None
    assert waiting(refusal, 2) == "4Gi asked, largest free room 3.2Gi on GPU 1: waiting, 2nd in line"


def test_places_in_line_are_spelt_as_people_say_them() -> None:
    spelt = {
        1: "1st",
        2: "2nd",
        3: "3rd",
        4: "4th",
        10: "10th",
        11: "11th",
        12: "12th",
        13: "13th",
        21: "21st",
    }
    spelt |= {22: "22nd", 23: "23rd", 100: "100th", 101: "101st", 111: "111th", 112: "112th", 1013: "1013th"}
    assert {number: ordinal(number) for number in spelt} == spelt

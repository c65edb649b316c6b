"""A card is sick for as long as something is wrong with it, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.gpu import GPU
from cotenant.hardware.nvml import CardReading, Fault, Readings
from cotenant.kube.agent.cards.health import NOTHING, Remembered, judge, marked, recall, together
from cotenant.kube.nodes.gpus import VERSION, NodeCard, NodeGpus

GIB = 2**30
RECOVERY = 600.0


def gpu(at: int, **fields) -> GPU:
    return GPU(f"GPU-{at}", at, "T4", 16 * GIB, **fields)


def reading(at: int, problem: str | None = None, **fields) -> CardReading:
    return CardReading(gpu(at, healthy=problem is None, **fields), 0, problem=problem)


def seen(*cards: CardReading, lost: tuple[int, ...] = ()) -> Readings:
    return Readings(cards, lost)


def problems(cards) -> dict[str, str | None]:
    assert all(card.gpu.healthy == (card.problem is None) for card in cards)
    return {card.gpu.uuid: card.problem for card in cards}


def look(before: Remembered, told, in_use=frozenset(), now=0.0):
    return judge(before, told, in_use, now, RECOVERY)


def test_a_card_that_answers_is_well():
    _, cards = look(NOTHING, seen(reading(0), reading(1)))
    assert problems(cards) == {"GPU-0": None, "GPU-1": None}


def test_memory_errors_make_a_card_sick_until_its_counter_is_reset():
    before, cards = look(NOTHING, seen(reading(0, "2 uncorrected memory errors since it was reset")))
    assert problems(cards) == {"GPU-0": "2 uncorrected memory errors since it was reset"}
    _, cards = look(before, seen(reading(0)))
    assert problems(cards) == {"GPU-0": None}


def test_a_lost_card_keeps_its_size_and_is_well_when_it_answers_again():
    before, _ = look(NOTHING, seen(reading(0), reading(1)))
    before, cards = look(before, seen(reading(1), lost=(0,)))
    assert problems(cards) == {"GPU-0": "does not answer: it may have fallen off the bus", "GPU-1": None}
    assert cards[0].gpu.memory == 16 * GIB
    _, cards = look(before, seen(reading(0), reading(1)))
    assert problems(cards) == {"GPU-0": None, "GPU-1": None}


def test_a_fault_makes_a_card_sick_until_none_has_come_for_a_time():
    before, _ = look(NOTHING, seen(reading(0), reading(1)))
    before = marked(before, [Fault("GPU-1", 48)], 100.0)
    before, cards = look(before, seen(reading(0), reading(1)), now=101.0)
    assert problems(cards) == {"GPU-0": None, "GPU-1": "reported a fault (XID 48)"}
    before = marked(before, [Fault("GPU-1", 79)], 500.0)
    before, cards = look(before, seen(reading(0), reading(1)), now=900.0)
    assert problems(cards) == {"GPU-0": None, "GPU-1": "reported a fault (XID 79)"}
    before, cards = look(before, seen(reading(0), reading(1)), now=1101.0)
    assert problems(cards) == {"GPU-0": None, "GPU-1": None}
    assert before.marks == {}


def test_a_fault_that_is_over_does_not_bring_a_lost_card_back():
    before, _ = look(NOTHING, seen(reading(0)))
    before = marked(before, [Fault("GPU-0", 79)], 0.0)
    before, cards = look(before, seen(lost=(0,)), now=RECOVERY + 1)
    assert problems(cards) == {"GPU-0": "does not answer: it may have fallen off the bus"}
    _, cards = look(before, seen(reading(0)), now=RECOVERY + 2)
    assert problems(cards) == {"GPU-0": None}


def test_a_fault_of_a_physical_card_is_one_of_its_instances():
    instances = [CardReading(GPU(f"MIG-{at}", at, "A100 MIG", GIB, parent="GPU-7"), 0) for at in (0, 1)]
    before = marked(NOTHING, [Fault("GPU-7", 63)], 0.0)
    _, cards = look(before, seen(*instances, reading(2)))
    assert problems(cards) == {
        "MIG-0": "reported a fault (XID 63)",
        "MIG-1": "reported a fault (XID 63)",
        "GPU-2": None,
    }


def test_a_driver_without_an_answer_makes_all_cards_sick_and_forgets_none():
    before, _ = look(NOTHING, seen(reading(0), reading(1)))
    before, cards = look(before, "the driver does not answer")
    assert problems(cards) == {"GPU-0": "the driver does not answer", "GPU-1": "the driver does not answer"}
    assert [card.gpu.memory for card in cards] == [16 * GIB, 16 * GIB]
    _, cards = look(before, seen(reading(0), reading(1)))
    assert problems(cards) == {"GPU-0": None, "GPU-1": None}


def test_a_card_that_is_gone_stays_listed_while_it_has_grants():
    before, _ = look(NOTHING, seen(reading(0), reading(1)))
    before, cards = look(before, seen(reading(1)), in_use={"GPU-0"})
    assert problems(cards) == {"GPU-0": "does not answer: it may have fallen off the bus", "GPU-1": None}
    before, cards = look(before, seen(reading(1)))
    assert problems(cards) == {"GPU-1": None}
    _, cards = look(before, "the driver does not answer", in_use={"GPU-0"})
    assert problems(cards) == {"GPU-1": "the driver does not answer"}


def test_an_agent_that_starts_again_knows_what_the_last_one_told():
    told = NodeGpus(
        VERSION,
        (
            NodeCard("GPU-0", 0, "T4", 16 * GIB, problem="reported a fault (XID 79)"),
            NodeCard("GPU-1", 1, "T4", 16 * GIB, problem="3 uncorrected memory errors since it was reset"),
            NodeCard("GPU-2", 2, "T4", 16 * GIB),
        ),
    )
    before = recall(told, 50.0)
    before, cards = look(before, seen(reading(0), reading(1)), in_use={"GPU-2"}, now=60.0)
    assert problems(cards) == {
        "GPU-0": "reported a fault (XID 79)",
        "GPU-1": None,
        "GPU-2": "does not answer: it may have fallen off the bus",
    }
    _, cards = look(before, seen(reading(0), reading(1)), now=50.0 + RECOVERY)
    assert problems(cards) == {"GPU-0": None, "GPU-1": None}


def test_what_this_agent_saw_itself_goes_before_what_the_last_one_told():
    own = Remembered({"GPU-0": gpu(0)}, {})
    older = Remembered({"GPU-0": replace(gpu(0), memory=1), "GPU-1": gpu(1)}, {})
    assert together(own, older).known == {"GPU-0": gpu(0), "GPU-1": gpu(1)}


@pytest.mark.parametrize(
    "problem", ["reported a fault (XID )", "XID 79", "reported a fault (XID 9999999999)"]
)
def test_other_problems_are_no_faults(problem):
    told = NodeGpus(VERSION, (NodeCard("GPU-0", 0, "T4", GIB, problem=problem),))
    assert recall(told, 0.0).marks == {}


steps = st.lists(
    st.tuples(
        st.sampled_from(["all", "one", "none", "hang", "fault"]), st.floats(min_value=0, max_value=700)
    ),
    max_size=12,
)


@given(steps)
def test_no_card_is_sick_for_ever_and_none_with_grants_is_forgotten(steps):
    now, before = 0.0, NOTHING
    before, _ = look(before, seen(reading(0), reading(1)))
    for what, later in steps:
        now += later
        if what == "fault":
            before = marked(before, [Fault("GPU-0", 79)], now)
        told = {
            "one": seen(reading(1)),
            "none": seen(lost=(0, 1)),
            "hang": "hangs",
        }.get(what, seen(reading(0), reading(1)))
        before, cards = look(before, told, in_use={"GPU-0"}, now=now)
        assert "GPU-0" in problems(cards)
    _, cards = look(before, seen(reading(0), reading(1)), now=now + RECOVERY + 1)
    assert problems(cards) == {"GPU-0": None, "GPU-1": None}

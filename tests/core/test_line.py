"""The line: who starts, who may pass whom, and that nobody waits for ever."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from core.lines import PATIENCE, admitted, asks, filled, machine, now, remembered, wait
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import DuplicateCharge
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.line import Waiting, order, place_in_line
from cotenant.core.placement import place


def test_priority_then_age_then_id_decide_the_order() -> None:
    line = [
        wait("d", asks(1), since=5),
        wait("c", asks(1), since=3),
        wait("b", asks(1), since=3),
        wait("a", asks(1), since=9, priority=1),
        wait("e", asks(1), since=0, priority=-1),
    ]
    assert [each.id for each in order(line)] == ["a", "b", "c", "d", "e"]
    assert [place_in_line(line, id) for id in "abcde"] == [1, 2, 3, 4, 5]
    with pytest.raises(KeyError):
        place_in_line(line, "nobody")


def test_those_that_fit_are_admitted_in_order_and_the_ledger_given_stays_as_it_was() -> None:
    ledger = Ledger(machine(10))
    served = now(ledger, [wait("second", asks(6), since=2), wait("first", asks(6), since=1)], 3)
    assert admitted(served) == ["first"]
    assert served.held == {}
    assert ledger.grants == {}
    assert set(served.ledger.grants) == {"first"}


def test_a_small_demand_passes_a_big_one_that_has_not_waited_long() -> None:
    ledger = filled(machine(10), 5)
    line = [wait("big", asks(10), since=0), wait("small", asks(2), since=1)]
    assert admitted(now(ledger, line, PATIENCE - 1)) == ["small"]


def test_after_its_patience_a_big_demand_holds_a_card_and_nobody_behind_gets_on_it() -> None:
    ledger = filled(machine(10, 4), 5, 4)
    line = [wait("big", asks(10), since=0), wait("small", asks(2), since=1)]
    served = now(ledger, line, PATIENCE)
    assert admitted(served) == []
    assert served.held == {"big": ("0",)}
    assert served.held_for("small") == {"0": "big"}
    assert served.held_for("big") == {}


def test_others_go_on_using_the_cards_that_are_not_held() -> None:
    ledger = filled(machine(10, 4), 5, 0)
    line = [wait("big", asks(10), since=0), wait("small", asks(2), since=1)]
    served = now(ledger, line, PATIENCE)
    assert [(grant.id, grant.shares[0].uuid) for grant in served.admitted] == [("small", "1")]


def test_a_higher_priority_may_take_what_is_held_for_a_lower_one() -> None:
    ledger = filled(machine(10), 5)
    line = [wait("big", asks(10), held=("0",)), wait("urgent", asks(2), since=99, priority=1)]
    assert admitted(now(ledger, line, 100)) == ["urgent"]


def test_the_card_with_most_free_room_is_held_and_stays_held_when_another_becomes_roomier() -> None:
    gpus = machine(10, 10)
    line = [wait("big", asks(10))]
    served = now(filled(gpus, 4, 6), line, PATIENCE)
    assert served.held == {"big": ("0",)}
    served = now(filled(gpus, 4, 1), remembered(line, served), PATIENCE + 1)
    assert served.held == {"big": ("0",)}
    served = now(filled(gpus, 4, 0), remembered(line, served), PATIENCE + 2)
    assert served.admitted[0].shares[0].uuid == "1"
    assert served.held == {}


def test_a_hold_moves_on_when_its_card_falls_sick_vanishes_or_fills_up_from_outside() -> None:
    gpus = machine(10, 10)
    line = [wait("big", asks(10), held=("0",))]
    other = [Grant("x", (Share("1", 9),))]
    sick = Ledger([replace(gpus[0], healthy=False), gpus[1]], grants=other)
    assert now(sick, line, 99).held == {"big": ("1",)}
    assert now(Ledger(gpus[1:], grants=other), line, 99).held == {"big": ("1",)}
    assert now(Ledger(gpus, {"0": 1}, other), line, 99).held == {"big": ("1",)}


@pytest.mark.parametrize(
    "demand",
    [
        asks(11),
        asks(5, gpus=3),
        asks(5, uuids=("gone",)),
        asks(5, models=("H100",)),
        Demand(whole=3),
        asks(6, gpus=2, uuids=("0", "gone")),
    ],
)
def test_a_demand_that_can_never_be_served_holds_nothing_and_blocks_nobody(demand: Demand) -> None:
    ledger = Ledger(machine(10, 10))
    served = now(
        ledger, [wait("never", demand), wait("small", asks(10), since=1), wait("next", asks(9), since=2)], 1e9
    )
    assert admitted(served) == ["small", "next"]
    assert served.held == {}


def test_whole_cards_are_held_only_where_nobody_outside_sits() -> None:
    gpus = machine(10, 10)
    grants = [Grant("x", (Share("0", 1), Share("1", 1)))]
    served = now(
        Ledger(gpus, {"0": 1}, grants), [wait("whole", Demand()), wait("s", asks(1), since=1)], PATIENCE
    )
    assert served.held == {"whole": ("1",)}
    assert served.admitted[0].shares[0].uuid == "0"
    assert now(Ledger(gpus, {"0": 1, "1": 1}, grants), [wait("whole", Demand())], PATIENCE).held == {}


def test_a_demand_for_several_cards_holds_all_it_needs_or_none() -> None:
    gpus = machine(10, 10, 10)
    ledger = filled(gpus, 1, 2, 3)
    line = [
        wait("two", Demand(whole=2)),
        wait("pair", Demand(whole=2), since=1),
        wait("one", Demand(), since=2),
    ]
    served = now(ledger, line, 99)
    assert served.held == {"two": ("0", "1"), "one": ("2",)}


def test_several_that_waited_long_hold_different_cards() -> None:
    ledger = filled(machine(10, 10, 10), 1, 2, 3)
    line = [wait(name, asks(10), since=since) for since, name in enumerate(["a", "b", "c", "d"])]
    assert now(ledger, line, 99).held == {"a": ("0",), "b": ("1",), "c": ("2",)}


def test_a_newcomer_ahead_does_not_take_over_anothers_hold_without_need() -> None:
    ledger = filled(machine(10, 10), 1, 5)
    line = [wait("low", asks(10), held=("0",)), wait("high", asks(10), since=1, priority=1)]
    assert now(ledger, line, 99).held == {"high": ("1",), "low": ("0",)}


def test_an_empty_line_and_a_machine_without_cards() -> None:
    assert now(Ledger([]), [], 0).admitted == ()
    assert now(Ledger([]), [wait("x", asks(1))], 1e9).held == {}


def test_who_is_charged_already_cannot_wait() -> None:
    ledger = Ledger(machine(10), grants=[Grant("x", (Share("0", 1),))])
    with pytest.raises(DuplicateCharge):
        now(ledger, [wait("x", asks(1))], 0)


# Any machine, any line.

sizes = st.integers(1, 12)
demands = st.one_of(
    st.builds(asks, sizes, gpus=st.integers(1, 3)),
    st.builds(asks, sizes, uuids=st.sampled_from([("0",), ("1", "2"), ("gone",)])),
    st.builds(
        lambda percent, gpus: Demand(Memory(percent=Fraction(percent)), gpus=gpus), st.integers(1, 100), sizes
    ),
    st.builds(lambda cards: Demand(whole=cards), st.integers(1, 3)),
    st.builds(lambda size, compute: Demand(Memory(bytes=size), compute=compute), sizes, st.integers(1, 100)),
)
uuids = st.sampled_from(["0", "1", "2", "3", "gone"])
lines = st.lists(
    st.builds(
        Waiting,
        id=st.uuids().map(str),
        demand=demands,
        priority=st.integers(0, 1),
        since=st.integers(0, 100),
        held=st.lists(uuids, max_size=2, unique=True).map(tuple),
    ),
    max_size=6,
    unique_by=lambda waiting: waiting.id,
)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    gpus = [
        GPU(str(at), at, "T4", draw(sizes), draw(st.booleans() | st.just(True)))
        for at in range(draw(st.integers(0, 4)))
    ]
    ledger = Ledger(gpus, {gpu.uuid: draw(st.just(0) | st.integers(0, 4)) for gpu in gpus})
    for number, demand in enumerate(draw(st.lists(demands, max_size=4))):
        shares = place(ledger, demand)
        if shares is not None:
            ledger.charge(Grant(f"before-{number}", shares))
    return ledger


def could_take(ledger: Ledger, demand: Demand, without: set[str]) -> bool:
    return place(ledger, demand, closed=without) is not None


@given(ledgers(), lines, st.integers(0, 200))
def test_serving_keeps_to_the_rules(ledger: Ledger, line: list[Waiting], at: int) -> None:
    served = now(ledger, line, at)
    granted = {grant.id: {share.uuid for share in grant.shares} for grant in served.admitted}
    check = ledger.copy()
    for grant in served.admitted:
        check.charge(grant)
    held_ahead = set[str]()
    for waiting in order(line):
        held = set(served.held.get(waiting.id, ()))
        if waiting.id in granted:
            assert not held
            assert not granted[waiting.id] & held_ahead, "somebody passed onto a card held for one ahead"
            continue
        assert not could_take(check, waiting.demand, held_ahead), "left waiting though there is room"
        usable = {
            room.gpu.uuid
            for room in check.room()
            if room.gpu.healthy
            and waiting.demand.accepts(room.gpu)
            and waiting.demand.per_card(room.gpu.memory) + room.outside <= room.gpu.memory
        } - held_ahead
        expired = at - waiting.since >= PATIENCE
        assert len(held) == (waiting.demand.count if expired and len(usable) >= waiting.demand.count else 0)
        assert held <= usable
        held_ahead |= held
    assert set(served.held) <= {waiting.id for waiting in line}


@given(ledgers(), lines, st.integers(0, 200), st.integers(0, 6))
def test_those_behind_make_no_difference_to_those_ahead(
    ledger: Ledger, line: list[Waiting], at: int, first: int
) -> None:
    line = [replace(each, held=()) for each in order(line)]
    alone, together = now(ledger, line[:first], at), now(ledger, line, at)
    ahead = {each.id for each in line[:first]}
    assert alone.admitted == tuple(grant for grant in together.admitted if grant.id in ahead)
    assert alone.held == {id: cards for id, cards in together.held.items() if id in ahead}


@given(ledgers(), lines, st.integers(0, 200), st.data())
def test_holds_are_stable_until_someone_ahead_needs_the_card(
    ledger: Ledger, line: list[Waiting], at: int, data: st.DataObject
) -> None:
    first = now(ledger, line, at)
    again = now(first.ledger, remembered(line, first), at)
    assert again.admitted == ()
    assert again.held == first.held
    after = first.ledger.copy()
    for id in data.draw(st.lists(st.sampled_from([*sorted(after.grants), "nobody"]), unique=True)):
        after.release(id)
    later = now(after, remembered(line, first), at)
    ahead_as_before = True
    for waiting in order(line):
        if ahead_as_before and waiting.id in first.held and waiting.id not in admitted(later):
            assert later.held[waiting.id] == first.held[waiting.id]
        ahead_as_before &= first.held.get(waiting.id) == later.held.get(waiting.id)

"""An opening names whom it takes, for whom it waits, and the cards that are then there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from kube.scheduling.plain import GI, closed_to, demands, fleets, gib, granted, slow_place

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.ledger import Ledger
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.opening import opening_on
from cotenant.kube.scheduling.victims import Candidate


def two_cards() -> Fleet:
    """Of 16 GiB, 10 and 8 of which are taken."""
    fleet = Fleet()
    fleet.set_node("n", [GPU(str(at), at, "T4", 16 * GI) for at in range(2)], {})
    fleet.charge("n", granted("ten", Share("0", 10 * GI)))
    fleet.charge("n", granted("eight", Share("1", 8 * GI)))
    return fleet


def candidates(fleet: Fleet, **priorities: int) -> list[Candidate]:
    return [Candidate(uid, priorities.get(uid, 0), 0.0) for uid in fleet.pods_on("n")]


def test_one_victim_and_its_card() -> None:
    fleet = two_cards()
    found = opening_on(fleet, "n", "me", [gib(12)], candidates(fleet, eight=5), (), ())
    assert found is not None
    assert (found.node, found.cards, found.victims, found.awaited) == ("n", ("0",), ("ten",), ("ten",))


def test_one_who_leaves_is_awaited_and_no_victim() -> None:
    fleet = two_cards()
    found = opening_on(fleet, "n", "me", [gib(12)], candidates(fleet)[:1], ["eight"], ())
    assert found is not None
    assert (found.cards, found.victims, found.awaited) == (("1",), (), ("eight",))
    dearer = opening_on(fleet, "n", "me", [gib(12)], candidates(fleet), (), ())
    assert dearer is not None
    assert found.cost < dearer.cost


def test_there_is_none_where_it_fits_or_nothing_helps() -> None:
    fleet = two_cards()
    assert opening_on(fleet, "n", "me", [gib(6)], candidates(fleet), (), ()) is None
    assert opening_on(fleet, "n", "me", [gib(20)], candidates(fleet), ["ten"], ()) is None
    assert opening_on(fleet, "elsewhere", "me", [gib(6)], [], (), ()) is None


def test_cards_held_for_others_are_opened_only_if_those_are_behind() -> None:
    fleet = two_cards()
    fleet.hold("other", "n", ["0", "1"])
    assert opening_on(fleet, "n", "me", [gib(12)], candidates(fleet), (), ()) is None
    assert opening_on(fleet, "n", "me", [gib(12)], candidates(fleet), (), ["other"]) is not None


@settings(deadline=None)
@given(fleets(most=1), st.lists(demands(), min_size=1, max_size=3), st.data())
def test_when_the_awaited_have_ended_it_fits_on_those_cards(
    fleet: Fleet, asked: list[Demand], data: st.DataObject
) -> None:
    there = fleet.pods_on("n0")
    leaving = [uid for uid in there if data.draw(st.booleans())]
    others = [Candidate(uid, data.draw(st.integers(0, 2)), 0.0) for uid in there if uid not in leaving]
    found = opening_on(fleet, "n0", "me", asked, others, leaving, ())
    if found is None:
        return
    assert set(found.victims) <= set(found.awaited) <= {*found.victims, *leaving}
    assert found.victims or leaving
    left = [charge for uid in there if uid not in found.awaited for charge in fleet.pods[uid][1].charges]
    ledger = fleet.ledger("n0")
    after = Ledger(ledger.gpus, {gpu.uuid: ledger.outside(gpu.uuid) for gpu in ledger.gpus}, left)
    closed = closed_to(fleet, "n0", "me") | {gpu.uuid for gpu in ledger.gpus if gpu.uuid not in found.cards}
    assert slow_place(after, asked, closed) is not None

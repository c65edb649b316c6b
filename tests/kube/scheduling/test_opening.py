"""An opening names whom it takes, for whom it waits, and the cards that are then there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kube.scheduling.plain import GI, closed_to, demands, fleets, gib, granted, slow_place

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.ledger import Ledger
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.opening import opening_on
from cotenant.kube.scheduling.victims import Candidate, Tries


def two_cards() -> ClusterLedger:
    """Of 16 GiB, 10 and 8 of which are taken."""
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU(str(at), at, "T4", 16 * GI) for at in range(2)], {})
    cluster.charge("n", granted("ten", Share("0", 10 * GI)))
    cluster.charge("n", granted("eight", Share("1", 8 * GI)))
    return cluster


def candidates(cluster: ClusterLedger, **priorities: int) -> list[Candidate]:
    return [Candidate(uid, priorities.get(uid, 0), 0.0) for uid in cluster.pods_on("n")]


def test_one_victim_and_its_card() -> None:
    cluster = two_cards()
    found = opening_on(cluster, "n", "me", [gib(12)], candidates(cluster, eight=5), (), ())
    assert found is not None
    assert (found.node, found.cards, found.victims, found.awaited) == ("n", ("0",), ("ten",), ("ten",))


def test_one_who_leaves_is_awaited_and_no_victim() -> None:
    cluster = two_cards()
    found = opening_on(cluster, "n", "me", [gib(12)], candidates(cluster)[:1], ["eight"], ())
    assert found is not None
    assert (found.cards, found.victims, found.awaited) == (("1",), (), ("eight",))
    dearer = opening_on(cluster, "n", "me", [gib(12)], candidates(cluster), (), ())
    assert dearer is not None
    assert found.cost < dearer.cost


def test_there_is_none_where_it_fits_or_nothing_helps() -> None:
    cluster = two_cards()
    assert opening_on(cluster, "n", "me", [gib(6)], candidates(cluster), (), ()) is None
    assert opening_on(cluster, "n", "me", [gib(20)], candidates(cluster), ["ten"], ()) is None
    assert opening_on(cluster, "elsewhere", "me", [gib(6)], [], (), ()) is None


def test_an_opening_is_found_again_with_the_tries_that_were_left_for_it() -> None:
    """With more tries it could be another, and what was found would seem to be no longer true."""
    cluster, tries = two_cards(), Tries(1000)
    for _ in range(3):
        found = opening_on(cluster, "n", "me", [gib(7), gib(9)], candidates(cluster), (), (), tries)
        assert found is not None
        again = Tries(found.tries)
        assert opening_on(cluster, "n", "me", [gib(7), gib(9)], candidates(cluster), (), (), again) == found
        assert again == tries


def test_cards_held_for_others_are_opened_only_if_those_are_behind() -> None:
    cluster = two_cards()
    cluster.hold("other", "n", ["0", "1"])
    assert opening_on(cluster, "n", "me", [gib(12)], candidates(cluster), (), ()) is None
    assert opening_on(cluster, "n", "me", [gib(12)], candidates(cluster), (), ["other"]) is not None


@given(fleets(most=1), st.lists(demands(), min_size=1, max_size=3), st.data())
def test_when_the_awaited_have_ended_it_fits_on_those_cards(
    cluster: ClusterLedger, asked: list[Demand], data: st.DataObject
) -> None:
    there = cluster.pods_on("n0")
    leaving = [uid for uid in there if data.draw(st.booleans())]
    others = [Candidate(uid, data.draw(st.integers(0, 2)), 0.0) for uid in there if uid not in leaving]
    found = opening_on(cluster, "n0", "me", asked, others, leaving, ())
    if found is None:
        return
    assert set(found.victims) <= set(found.awaited) <= {*found.victims, *leaving}
    assert found.victims or leaving
    left = [charge for uid in there if uid not in found.awaited for charge in cluster.pods[uid][1].charges]
    ledger = cluster.ledger("n0")
    after = Ledger(ledger.gpus, {gpu.uuid: ledger.outside(gpu.uuid) for gpu in ledger.gpus}, left)
    closed = closed_to(cluster, "n0", "me") | {gpu.uuid for gpu in ledger.gpus if gpu.uuid not in found.cards}
    assert slow_place(after, asked, closed) is not None

"""The cluster's line: who is woken, for whom cards are held, and that no room is promised twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kube.scheduling.plain import GI, demands, fleets, gib, granted, ledger_of_cluster, slow_place

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import in_order
from cotenant.kube.scheduling.eligible import EligibleNodes
from cotenant.kube.scheduling.waiting import ServedLine, WaitingPod, order, serve

PATIENCE = 60.0


def waiting(
    uid: str, *asked: Demand, priority: int = 0, since: float = 0.0, only: list[int] | None = None
) -> WaitingPod:
    eligible = None
    if only is not None:
        mask = np.zeros(8, np.bool_)
        mask[only] = True
        eligible = EligibleNodes(mask, arrivals=8)
    return WaitingPod(uid, asked, priority, since, eligible, created=since)


def at(cluster: ClusterLedger, now: float, *line: WaitingPod, gained: list[str] | None = None) -> ServedLine:
    rows = None if gained is None else cluster.rows(gained)
    return serve(cluster, line, now, PATIENCE, rows)


def apply(cluster: ClusterLedger, served: ServedLine) -> None:
    for uid in cluster.holds():
        if uid not in served.holds:
            cluster.unhold(uid)
    for uid, (node, cards) in served.holds.items():
        cluster.hold(uid, node, cards)


def test_one_room_wakes_one_pod_the_first() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    line = [waiting(f"w{since}", gib(4), since=since) for since in (3, 1, 2)]
    assert at(cluster, 10, *line).wake == ("w1",)
    assert at(cluster, 10, *line, gained=["n0"]).wake == ("w1",)
    assert at(cluster, 10, *line, gained=[]).wake == ()
    first = waiting("urgent", gib(4), priority=7, since=9)
    assert at(cluster, 10, *line, first).wake == ("urgent",)


def test_as_many_are_woken_as_there_is_room_for() -> None:
    cluster = ledger_of_cluster([(9, 16)], [(4, 16), (3, 16)])
    line = [waiting(f"w{since}", gib(4), since=since) for since in range(6)]
    assert at(cluster, 10, *line).wake == ("w0", "w1", "w2")


def test_a_smaller_pod_passes_a_bigger_one_that_does_not_fit_yet() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    served = at(cluster, 10, waiting("big", gib(8)), waiting("small", gib(2), since=1))
    assert served.wake == ("small",)
    assert not served.holds


def test_one_that_has_waited_too_long_holds_the_card_where_least_is_missing() -> None:
    cluster = ledger_of_cluster([(4, 16)], [(3, 16), (6, 16)], [(7, 7)])
    big, small = waiting("big", gib(8)), waiting("small", gib(2), since=1, only=[0, 1])
    served = at(cluster, 60, big, small)
    assert served.holds == {"big": ("n1", ("n1-1",))}
    assert served.wake == ("small",)
    apply(cluster, served)
    small = waiting("small", gib(6), since=1)
    assert at(cluster, 61, big, small).wake == ("small",)
    assert at(cluster, 61, big, waiting("small", gib(6), since=1, only=[0, 1])).wake == ()


def test_a_hold_stays_where_it_is_until_its_pod_has_the_room() -> None:
    cluster = ledger_of_cluster([(4, 16)], [(6, 16)])
    big = waiting("big", gib(8))
    apply(cluster, at(cluster, 60, big))
    assert cluster.holds() == {"big": ("n1", ("n1-0",))}
    cluster.load("n1", granted("late", Share("n1-0", 6 * GI)))
    assert at(cluster, 61, big).holds == cluster.holds()
    cluster.release("late")
    cluster.release("on-n1-0")
    served = at(cluster, 62, big, waiting("small", gib(16), since=50), gained=["n1"])
    assert served.wake == ("big",)
    assert served.holds == cluster.holds(), "nobody may take the room before it is bound"


def test_cards_are_held_all_or_none() -> None:
    cluster = ledger_of_cluster([(4, 16), (16, 16)], [(16, 16)])
    cluster.hold("first", "n0", ["n0-0"])
    line = waiting("first", Demand(whole=1, uuids=("n0-0",))), waiting("two", Demand(whole=2), since=1)
    served = at(cluster, 99, *line)
    assert served.holds == {"first": ("n0", ("n0-0",))}
    assert at(cluster, 99, line[1]).holds == {"two": ("n0", ("n0-0", "n0-1"))}


def test_who_comes_first_takes_the_room_and_the_card_that_one_behind_holds() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    big = waiting("big", gib(8))
    apply(cluster, at(cluster, 60, big))
    urgent = waiting("urgent", gib(3), priority=5, since=61)
    for gained in (None, []):
        served = at(cluster, 61, big, urgent, gained=gained)
        assert served.wake == ("urgent",)
        assert not served.holds, "or the pod that is woken would find the card closed"
    huge = waiting("huge", Demand(whole=1), priority=5)
    assert at(cluster, 99, big, huge).holds == {"huge": ("n0", ("n0-0",))}


def test_what_one_was_told_of_a_card_is_not_told_to_the_next_when_its_holder_stands_between_them() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    cluster.hold("holder", "n0", ["n0-0"])
    elsewhere = waiting("elsewhere", gib(4), priority=9, only=[7])
    holder, after = waiting("holder", gib(8), priority=5), waiting("after", gib(4))
    assert at(cluster, 99, elsewhere, after).wake == ("after",)
    served = at(cluster, 99, elsewhere, holder, after)
    assert served.wake == ()
    assert served.holds == {"holder": ("n0", ("n0-0",))}


def test_what_one_lets_go_is_there_for_the_next_with_the_same_demand() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    cluster.hold("moved", "n0", ["n0-0"])
    moved = waiting("moved", gib(4), priority=5, only=[7])
    assert at(cluster, 99, moved, waiting("after", gib(4))).wake == ("after",)


def test_holds_of_pods_that_no_longer_wait_are_lifted() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    cluster.hold("gone", "n0", ["n0-0"])
    served = at(cluster, 10, waiting("w", gib(4)))
    assert served.wake == ("w",)
    assert not served.holds


def test_a_hold_on_a_card_that_will_not_do_any_more_moves() -> None:
    cluster = ledger_of_cluster([(4, 16)], [(6, 16)])
    big = waiting("big", gib(8))
    apply(cluster, at(cluster, 60, big))
    cluster.set_node("n1", [GPU("n1-0", 0, "T4", 16 * GI, healthy=False)], {})
    assert at(cluster, 61, big).holds == {"big": ("n0", ("n0-0",))}
    cluster.drop_node("n1")
    assert at(cluster, 61, big).holds == {"big": ("n0", ("n0-0",))}
    cluster.drop_node("n0")
    assert at(cluster, 61, big) == ServedLine((), {}, {})


def test_a_pod_is_woken_and_holds_only_where_it_may_go() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(4, 16)])
    assert at(cluster, 10, waiting("w", gib(8), only=[1])).wake == ()
    assert at(cluster, 60, waiting("w", gib(8), only=[1])).holds == {"w": ("n1", ("n1-0",))}
    cluster.set_node("n2", [GPU("n2-0", 0, "T4", 16 * GI)], {})
    older = WaitingPod("w", (gib(8),), 0, 0.0, EligibleNodes(np.array([False, True]), arrivals=2))
    assert at(cluster, 10, older).places == {"w": ("n2", ("n2-0",))}


def test_a_pod_too_big_for_any_node_holds_nothing() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    assert at(cluster, 99, waiting("w", gib(17))) == ServedLine((), {}, {})
    assert at(cluster, 99, waiting("w", gib(9), gib(9))) == ServedLine((), {}, {})


def test_an_empty_line_and_an_empty_cluster_are_served() -> None:
    assert at(ledger_of_cluster([(16, 16)]), 99) == ServedLine((), {}, {})
    assert at(ClusterLedger(), 99, waiting("w", gib(1))) == ServedLine((), {}, {})
    assert at(ClusterLedger(), 99, waiting("w", gib(1)), gained=[]) == ServedLine((), {}, {})


def eligible_nodes(may: list[bool]) -> EligibleNodes:
    """All nodes that have arrived since may be gone to."""
    return EligibleNodes(np.array(may, np.bool_), arrivals=len(may))


@st.composite
def lines(draw: st.DrawFn) -> tuple[ClusterLedger, list[WaitingPod]]:
    cluster = draw(fleets(most=3))
    kinds = draw(st.lists(st.lists(demands(), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2))
    line = [
        WaitingPod(
            uid,
            draw(st.sampled_from(kinds)),
            draw(st.integers(0, 2)),
            draw(st.integers(0, 100)),
            draw(st.none() | st.lists(st.booleans(), max_size=3).map(eligible_nodes)),
        )
        for uid in ["me", "n0-waiting", "n1-waiting", "w0", "w1", "w2", "w3"][: draw(st.integers(1, 7))]
    ]
    return cluster, line


def state(cluster: ClusterLedger) -> list[object]:
    matrix = cluster.matrix
    arrays = (matrix.free, matrix.compute, matrix.unused, matrix.held)
    return [cluster.holds(), cluster.pods, *(array.tolist() for array in arrays)]


def nodes_for(cluster: ClusterLedger, one: WaitingPod, nodes: list[str]) -> list[str]:
    rows = cluster.rows(nodes).tolist()
    return [
        node
        for node, row in zip(nodes, rows, strict=True)
        if one.eligible is None or row >= len(one.eligible.mask) or one.eligible.mask[row]
    ]


def drained(ledger: Ledger) -> Ledger:
    return Ledger(ledger.gpus, {gpu.uuid: ledger.outside(gpu.uuid) for gpu in ledger.gpus})


def will_do(cluster: ClusterLedger, one: WaitingPod, node: str, closed: set[str]) -> bool:
    return slow_place(drained(cluster.ledger(node)), one.demands, closed) is not None


def charge(ledger: Ledger, one: WaitingPod, cards: tuple[str, ...]) -> None:
    """Raises NoRoom if it was woken for room that is not there."""
    left = list(cards)
    for number, demand in enumerate(in_order(one.demands)):
        taken, left = left[: demand.count], left[demand.count :]
        shares = tuple(
            Share(
                uuid,
                demand.per_card(ledger.room_on(uuid).gpu.memory),
                demand.compute,
                whole=demand.memory is None,
            )
            for uuid in taken
        )
        ledger.charge(Grant(f"{one.uid}/{number}", shares))
    assert not left


@settings(max_examples=80)
@given(lines(), st.booleans(), st.data())
def test_the_line_is_served_in_order_and_no_room_twice(
    situation: tuple[ClusterLedger, list[WaitingPod]], quick: bool, data: st.DataObject
) -> None:
    cluster, line = situation
    before, earlier = state(cluster), cluster.holds()
    searched = list(cluster.nodes)
    if quick:
        searched = data.draw(st.lists(st.sampled_from(searched), unique=True))
    served = serve(cluster, line, 100.0, PATIENCE, cluster.rows(searched) if quick else None)
    assert state(cluster) == before, "the fleet is left as it was"
    assert set(served.places) == set(served.wake)

    ledgers = {node: cluster.ledger(node).copy() for node in cluster.nodes}
    closed: dict[str, set[str]] = {node: set() for node in cluster.nodes}
    spoken: dict[str, set[str]] = {node: set() for node in cluster.nodes}
    woken = []
    for one in order(line):
        if one.uid in served.places:
            node, cards = served.places[one.uid]
            assert node in nodes_for(cluster, one, list(cluster.nodes))
            assert closed[node].isdisjoint(cards), "those in front hold it"
            charge(ledgers[node], one, cards)
            spoken[node] |= set(cards)
            woken.append(one.uid)
        else:
            for node in nodes_for(cluster, one, searched):
                assert slow_place(ledgers[node], one.demands, closed[node]) is None, "it fits and sleeps"
        hold = served.holds.get(one.uid)
        good = one.uid in earlier and keeps(cluster, one, earlier[one.uid], closed, spoken)
        if hold is not None:
            node, held = hold
            assert one.since <= 40 or one.uid in served.places
            assert closed[node].isdisjoint(held)
            if one.uid not in served.places:
                assert spoken[node].isdisjoint(held) or hold == earlier.get(one.uid)
                assert not good or hold == earlier[one.uid]
                if not quick:
                    others = {gpu.uuid for gpu in cluster.gpus(node)} - set(held)
                    assert will_do(cluster, one, node, others), "what is held is enough"
            closed[node] |= set(held)
        elif one.since <= 40 and one.uid not in served.places and not quick:
            for node in nodes_for(cluster, one, list(cluster.nodes)):
                assert not will_do(cluster, one, node, closed[node] | spoken[node]), "it could hold cards"
    assert served.wake == tuple(woken)


def keeps(
    cluster: ClusterLedger,
    one: WaitingPod,
    hold: tuple[str, tuple[str, ...]],
    closed: dict[str, set[str]],
    spoken: dict[str, set[str]],
) -> bool:
    """Whether an earlier hold is still good, and untouched by those in front."""
    node, cards = hold
    others = {gpu.uuid for gpu in cluster.gpus(node)} - set(cards)
    return (
        node in nodes_for(cluster, one, [node])
        and will_do(cluster, one, node, others)
        and (closed[node] | spoken[node]).isdisjoint(cards)
    )


def test_of_a_thousand_different_pods_those_are_woken_whom_one_room_holds() -> None:
    cluster = ledger_of_cluster(*[[(1, 16), (2, 16)]] * 100)
    line = [waiting(f"w{at}", Demand(Memory(bytes=3 * GI + at)), since=at) for at in range(1000)]
    assert at(cluster, 10, *line).wake == ()
    cluster.release("on-n7-0")
    rows = cluster.take_gained()
    served = serve(cluster, line, 10.0, PATIENCE, rows)
    assert served.wake == ("w0", "w1", "w2", "w3", "w4")
    assert {node for node, _ in served.places.values()} == {"n7"}

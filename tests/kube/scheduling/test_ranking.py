"""Which node is best: as the core ranks the cards of one machine, over many nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kube.scheduling.plain import GI, closed_to, demands, fleet_of, fleets, gib, granted, slow_place, typicals

from cotenant.core.demand import Demand
from cotenant.core.fragmentation import Typical, coarse, fragmentation
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.placement import place
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.ranking import by_rank, scores


def scored(fleet: Fleet, *asked: Demand, uid: str = "me") -> dict[str, int]:
    found = scores(fleet, uid, asked, fleet.rows(fleet.nodes))
    return dict(zip(fleet.nodes, found.tolist(), strict=True))


def test_binpack_prefers_the_tightest_card_of_all() -> None:
    fleet = fleet_of([(16, 16)], [(9, 16), (5, 16)], [(6, 16)], [(3, 16)])
    assert scored(fleet, gib(4, placement="binpack")) == {"n0": 4, "n1": 10, "n2": 9, "n3": 0}


def test_spread_prefers_the_emptiest_card_of_all() -> None:
    fleet = fleet_of([(12, 16)], [(16, 16), (5, 16)], [(6, 16)])
    assert scored(fleet, gib(4, placement="spread"))["n1"] == 10
    two = scored(fleet_of([(8, 16), (8, 16)], [(16, 16), (16, 16)]), gib(4, gpus=2, placement="spread"))
    assert two["n1"] == 10


def test_frag_keeps_whole_cards_for_those_who_want_them() -> None:
    fleet = fleet_of([(16, 16)], [(9, 16)])
    fleet.typical = ((1, Demand(whole=1)),)
    assert scored(fleet, gib(2)) == {"n0": 9, "n1": 10}
    fleet.typical = ((1, gib(8)),)
    assert scored(fleet, gib(2)) == {"n0": 10, "n1": 9}


def test_what_is_left_counts_on_the_card_that_the_policy_takes() -> None:
    """The first node has a tighter card, but a whole one, which frag would not take."""
    fleet = fleet_of([(14, 16), (5, 5)], [(9, 16)])
    fleet.typical = ((1, Demand(whole=1)),)
    assert scored(fleet, gib(4)) == {"n0": 9, "n1": 10}
    assert scored(fleet, gib(4, placement="binpack")) == {"n0": 10, "n1": 9}


def test_what_a_demand_for_two_cards_loses_is_counted_without_what_is_taken() -> None:
    """After it 12 of 20Gi are lost to pairs on the first node (1.2 cards), 52 of 60Gi on the second (1.3)."""
    fleet = fleet_of([(10, 10), (10, 10)], [(40, 40), (20, 20)])
    fleet.typical = ((1, Demand(whole=2)),)
    assert scored(fleet, gib(8)) == {"n0": 10, "n1": 9}


def test_of_equal_cards_the_fuller_node_is_taken_and_then_the_first() -> None:
    fleet = fleet_of([(16, 16), (16, 16)], [(16, 16), (2, 16)], [(16, 16), (2, 16)])
    assert [node for node, score in scored(fleet, Demand(whole=1)).items() if score == 10] == ["n1"]


def test_where_it_does_not_fit_is_no_rank() -> None:
    fleet = fleet_of([(1, 16)], [(2, 16)])
    assert scored(fleet, gib(4)) == {"n0": 0, "n1": 0}
    fleet.hold("another", "n1", ["n1-0"])
    assert scored(fleet, gib(1))["n0"] == 10
    assert scores(fleet, "me", [gib(1)], np.array([-1], np.int32)).tolist() == [0]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 12, 5000])
def test_one_node_has_ten_and_the_others_fall_from_nine_to_nothing(count: int) -> None:
    found = by_rank(count).tolist()
    assert found[0] == 10
    assert all(0 <= score <= 9 for score in found[1:])
    assert found == sorted(found, reverse=True)
    assert count < 3 or found[1] == 9


def test_weights_too_large_for_whole_numbers_still_rank() -> None:
    fleet = Fleet(typical=((2**40, Demand(whole=1)), (2.5, gib(1))))
    fleet.set_node("used", [GPU("a", 0, "X", 2**60)], {})
    fleet.set_node("free", [GPU("b", 0, "X", 2**60)], {})
    fleet.charge("used", granted("p", Share("a", 1)))
    assert scored(fleet, gib(1)) == {"used": 10, "free": 9}


def test_weights_too_large_for_whole_numbers_still_count() -> None:
    """Best fit would take the smaller card, which then is of no use to those who want one whole."""
    fleet = Fleet(typical=((2**40, Demand(whole=1)), (2.5, gib(1))))
    fleet.set_node("used", [GPU("a", 0, "X", 2**60)], {})
    fleet.set_node("free", [GPU("b", 0, "X", 2**59)], {})
    fleet.charge("used", granted("p", Share("a", 1)))
    assert scored(fleet, gib(1)) == {"used": 10, "free": 9}


def single_key(
    ledger: Ledger, demand: Demand, typical: Typical, closed: set[str]
) -> tuple[float, ...] | None:
    """What the core's own choice costs on this machine."""
    shares = place(ledger, demand, typical, closed)
    if shares is None:
        return None
    room, after = ledger.room_on(shares[0].uuid), ledger.copy()
    after.charge(Grant("new", shares))
    first: tuple[float, ...] = ()
    if demand.placement == "frag":
        increase = fragmentation(after.room(), typical) - fragmentation(ledger.room(), typical)
        first = (coarse(increase, typical, max(gpu.memory for gpu in ledger.gpus)),)
    elif demand.placement == "spread":
        first = (-room.free,)
    free = sum(each.free for each in ledger.room())
    return (
        *first,
        after.free(shares[0].uuid),
        room.gpu.memory,
        -free if demand.placement == "spread" else free,
    )


def check(fleet: Fleet, asked: list[Demand], keys: dict[str, tuple[float, ...] | None]) -> None:
    found = scored(fleet, *asked)
    fitting = {node: key for node, key in keys.items() if key is not None}
    order = sorted(fitting, key=lambda node: (fitting[node], fleet.rows([node])[0]))
    assert {node: found[node] for node in order} == dict(
        zip(order, by_rank(len(order)).tolist(), strict=True)
    )
    assert all(found[node] == 0 for node in keys if node not in fitting)


@settings(deadline=None, max_examples=60)
@given(fleets(most=6), demands(most=1), typicals)
def test_nodes_are_ranked_by_what_the_core_would_choose_on_each(
    fleet: Fleet, demand: Demand, typical: Typical
) -> None:
    fleet.typical = typical
    check(
        fleet,
        [demand],
        {
            node: single_key(fleet.ledger(node), demand, typical, closed_to(fleet, node, "me"))
            for node in fleet.nodes
        },
    )


def several_key(
    ledger: Ledger, asked: list[Demand], typical: Typical, closed: set[str]
) -> tuple[float, ...] | None:
    """The node as a whole: the measure of the paper, then what is left on the cards taken, part by part."""
    placement, free = asked[0].placement, sum(each.free for each in ledger.room())
    after = slow_place(ledger, asked, closed)
    if after is None:
        return None
    if placement == "spread":
        return (-free,)
    increase = fragmentation(after.room(), typical) - fragmentation(ledger.room(), typical)
    figure = coarse(increase, typical, max(gpu.memory for gpu in ledger.gpus))
    left = size = 0
    step = ledger.copy()
    for id, grant in after.grants.items():
        if id not in ledger.grants:
            step.charge(grant)
            left += sum(step.free(share.uuid) for share in grant.shares)
            size += sum(step.room_on(share.uuid).gpu.memory for share in grant.shares)
    return (*((figure,) if placement == "frag" else ()), left, size, free)


@settings(deadline=None, max_examples=60)
@given(
    fleets(most=6),
    st.lists(demands(), min_size=1, max_size=3),
    typicals,
    st.sampled_from(["frag", "binpack", "spread"]),
)
def test_nodes_are_ranked_for_pods_of_several_parts_by_what_all_of_them_cost(
    fleet: Fleet, asked: list[Demand], typical: Typical, placement: str
) -> None:
    assume(len(asked) > 1 or asked[0].count > 1)
    fleet.typical = typical
    asked = [replace(demand, placement=placement) for demand in asked]
    check(
        fleet,
        asked,
        {
            node: several_key(fleet.ledger(node), asked, typical, closed_to(fleet, node, "me"))
            for node in fleet.nodes
        },
    )


def test_thousands_of_nodes_are_ranked_as_a_few_are() -> None:
    fleet = Fleet()
    for node in range(2500):
        fleet.set_node(f"n{node}", [GPU(f"{node}-{at}", at, "T4", 16 * GI) for at in range(2)], {})
        used = 1 + (node * 7919) % 12
        fleet.charge(f"n{node}", granted(f"p{node}", Share(f"{node}-0", used * GI)))
    asked = gib(4, placement="binpack")
    (best,) = (node for node, score in scored(fleet, asked).items() if score == 10)
    assert fleet.ledger(best).free(f"{best[1:]}-0") == 4 * GI
    assert all(fleet.ledger(f"n{node}").free(f"{node}-0") > 4 * GI for node in range(int(best[1:])))

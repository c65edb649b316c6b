"""Which node is best: as the core ranks the cards of one machine, over many nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kube.scheduling.plain import (
    GI,
    closed_to,
    demands,
    fleets,
    gib,
    granted,
    ledger_of_cluster,
    slow_place,
    typicals,
)

from cotenant.core.demand import Demand
from cotenant.core.fragmentation import Typical, coarse, fragmentation
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.placement import place
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.ranking import by_rank, scores


def scored(cluster: ClusterLedger, *asked: Demand, uid: str = "me") -> dict[str, int]:
    found = scores(cluster, uid, asked, cluster.rows(cluster.nodes))
    return dict(zip(cluster.nodes, found.tolist(), strict=True))


def test_binpack_prefers_the_tightest_card_of_all() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(9, 16), (5, 16)], [(6, 16)], [(3, 16)])
    assert scored(cluster, gib(4, placement="binpack")) == {"n0": 4, "n1": 10, "n2": 9, "n3": 0}


def test_spread_prefers_the_emptiest_card_of_all() -> None:
    cluster = ledger_of_cluster([(12, 16)], [(16, 16), (5, 16)], [(6, 16)])
    assert scored(cluster, gib(4, placement="spread"))["n1"] == 10
    two = scored(
        ledger_of_cluster([(8, 16), (8, 16)], [(16, 16), (16, 16)]), gib(4, gpus=2, placement="spread")
    )
    assert two["n1"] == 10


def test_frag_keeps_whole_cards_for_those_who_want_them() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(9, 16)])
    cluster.typical = ((1, Demand(whole=1)),)
    assert scored(cluster, gib(2)) == {"n0": 9, "n1": 10}
    cluster.typical = ((1, gib(8)),)
    assert scored(cluster, gib(2)) == {"n0": 10, "n1": 9}


def test_what_is_left_counts_on_the_card_that_the_policy_takes() -> None:
    """The first node has a tighter card, but a whole one, which frag would not take."""
    cluster = ledger_of_cluster([(14, 16), (5, 5)], [(9, 16)])
    cluster.typical = ((1, Demand(whole=1)),)
    assert scored(cluster, gib(4)) == {"n0": 9, "n1": 10}
    assert scored(cluster, gib(4, placement="binpack")) == {"n0": 10, "n1": 9}


def test_what_a_demand_for_two_cards_loses_is_counted_without_what_is_taken() -> None:
    """After it 12 of 20Gi are lost to pairs on the first node (1.2 cards), 52 of 60Gi on the second (1.3)."""
    cluster = ledger_of_cluster([(10, 10), (10, 10)], [(40, 40), (20, 20)])
    cluster.typical = ((1, Demand(whole=2)),)
    assert scored(cluster, gib(8)) == {"n0": 10, "n1": 9}


def test_of_equal_cards_the_fuller_node_is_taken_and_then_the_first() -> None:
    cluster = ledger_of_cluster([(16, 16), (16, 16)], [(16, 16), (2, 16)], [(16, 16), (2, 16)])
    assert [node for node, score in scored(cluster, Demand(whole=1)).items() if score == 10] == ["n1"]


def test_where_it_does_not_fit_is_no_rank() -> None:
    cluster = ledger_of_cluster([(1, 16)], [(2, 16)])
    assert scored(cluster, gib(4)) == {"n0": 0, "n1": 0}
    cluster.hold("another", "n1", ["n1-0"])
    assert scored(cluster, gib(1))["n0"] == 10
    assert scores(cluster, "me", [gib(1)], np.array([-1], np.int32)).tolist() == [0]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 12, 5000])
def test_one_node_has_ten_and_the_others_fall_from_nine_to_nothing(count: int) -> None:
    found = by_rank(count).tolist()
    assert found[0] == 10
    assert all(0 <= score <= 9 for score in found[1:])
    assert found == sorted(found, reverse=True)
    assert count < 3 or found[1] == 9


def test_weights_too_large_for_whole_numbers_still_rank() -> None:
    cluster = ClusterLedger(typical=((2**40, Demand(whole=1)), (2.5, gib(1))))
    cluster.set_node("used", [GPU("a", 0, "X", 2**60)], {})
    cluster.set_node("free", [GPU("b", 0, "X", 2**60)], {})
    cluster.charge("used", granted("p", Share("a", 1)))
    assert scored(cluster, gib(1)) == {"used": 10, "free": 9}


def test_weights_too_large_for_whole_numbers_still_count() -> None:
    """Best fit would take the smaller card, which then is of no use to those who want one whole."""
    cluster = ClusterLedger(typical=((2**40, Demand(whole=1)), (2.5, gib(1))))
    cluster.set_node("used", [GPU("a", 0, "X", 2**60)], {})
    cluster.set_node("free", [GPU("b", 0, "X", 2**59)], {})
    cluster.charge("used", granted("p", Share("a", 1)))
    assert scored(cluster, gib(1)) == {"used": 10, "free": 9}


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


def check(cluster: ClusterLedger, asked: list[Demand], keys: dict[str, tuple[float, ...] | None]) -> None:
    found = scored(cluster, *asked)
    fitting = {node: key for node, key in keys.items() if key is not None}
    order = sorted(fitting, key=lambda node: (fitting[node], cluster.rows([node])[0]))
    assert {node: found[node] for node in order} == dict(
        zip(order, by_rank(len(order)).tolist(), strict=True)
    )
    assert all(found[node] == 0 for node in keys if node not in fitting)


@settings(max_examples=60)
@given(fleets(most=6), demands(most=1), typicals)
def test_nodes_are_ranked_by_what_the_core_would_choose_on_each(
    cluster: ClusterLedger, demand: Demand, typical: Typical
) -> None:
    cluster.typical = typical
    check(
        cluster,
        [demand],
        {
            node: single_key(cluster.ledger(node), demand, typical, closed_to(cluster, node, "me"))
            for node in cluster.nodes
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


@settings(max_examples=60)
@given(
    fleets(most=6),
    st.lists(demands(), min_size=1, max_size=3),
    typicals,
    st.sampled_from(["frag", "binpack", "spread"]),
)
def test_nodes_are_ranked_for_pods_of_several_parts_by_what_all_of_them_cost(
    cluster: ClusterLedger, asked: list[Demand], typical: Typical, placement: str
) -> None:
    assume(len(asked) > 1 or asked[0].count > 1)
    cluster.typical = typical
    asked = [replace(demand, placement=placement) for demand in asked]
    check(
        cluster,
        asked,
        {
            node: several_key(cluster.ledger(node), asked, typical, closed_to(cluster, node, "me"))
            for node in cluster.nodes
        },
    )


def test_thousands_of_nodes_are_ranked_as_a_few_are() -> None:
    cluster = ClusterLedger()
    for node in range(2500):
        cluster.set_node(f"n{node}", [GPU(f"{node}-{at}", at, "T4", 16 * GI) for at in range(2)], {})
        used = 1 + (node * 7919) % 12
        cluster.charge(f"n{node}", granted(f"p{node}", Share(f"{node}-0", used * GI)))
    asked = gib(4, placement="binpack")
    (best,) = (node for node, score in scored(cluster, asked).items() if score == 10)
    assert cluster.ledger(best).free(f"{best[1:]}-0") == 4 * GI
    assert all(cluster.ledger(f"n{node}").free(f"{node}-0") > 4 * GI for node in range(int(best[1:])))

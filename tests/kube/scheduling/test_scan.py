"""Where a pod fits: the matrix says what the ledgers of the nodes say, one by one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.scheduling.plain import (
    GI,
    closed_to,
    fleets,
    gib,
    granted,
    ledger_of_cluster,
    pods,
    slots,
    slow_verdict,
)

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import NoRoom
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.dialect import ContainerDemand, SlotDemand
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.placing import place_pod
from cotenant.kube.scheduling.scan import Verdict, scan


def verdicts(
    cluster: ClusterLedger, *demands: Demand, uid: str = "me", nodes: list[str] | None = None
) -> list[Verdict]:
    rows = cluster.rows(nodes or list(cluster.nodes))
    return [Verdict(each) for each in scan(cluster, uid, demands, rows)]


def test_each_node_gets_its_own_word() -> None:
    cluster = ledger_of_cluster([(4, 16)], [(3, 16), (2, 16)], [(2, 2)], [])
    cluster.set_node("h", [GPU("h", 0, "H100", 80 * GI)], {})
    cluster.hold("another", "h", ["h"])
    nodes = ["n0", "n1", "n2", "n3", "h", "never-seen"]
    assert verdicts(cluster, gib(4), nodes=nodes) == [
        Verdict.FITS,
        Verdict.NO_ROOM,
        Verdict.TOO_BIG,
        Verdict.NO_CARDS,
        Verdict.HELD,
        Verdict.NO_CARDS,
    ]
    assert verdicts(cluster, Demand(Memory(bytes=1), models=("H100",)), nodes=nodes[:2]) == [
        Verdict.UNKNOWN_MODEL,
        Verdict.UNKNOWN_MODEL,
    ]


def test_a_cluster_without_nodes_has_no_cards() -> None:
    cluster = ClusterLedger()
    assert verdicts(cluster, gib(4), nodes=["a", "b"]) == [Verdict.NO_CARDS, Verdict.NO_CARDS]
    assert len(scan(cluster, "me", [gib(4)], np.zeros(0, np.int32))) == 0


def test_held_cards_are_open_to_the_pod_they_are_held_for_and_to_nobody_else() -> None:
    cluster = ledger_of_cluster([(16, 16), (16, 16)])
    cluster.hold("me", "n0", ["n0-0"])
    assert verdicts(cluster, Demand(whole=2)) == [Verdict.FITS]
    assert verdicts(cluster, Demand(whole=2), uid="you") == [Verdict.HELD]
    assert verdicts(cluster, Demand(whole=1), uid="you") == [Verdict.FITS]
    cluster.hold("you", "n0", ["n0-0", "n0-1"])
    assert verdicts(cluster, Demand(whole=1)) == [Verdict.HELD]


def test_containers_of_a_pod_share_cards_as_they_fit() -> None:
    cluster = ledger_of_cluster([(10, 16), (16, 16)])
    assert verdicts(cluster, gib(10), gib(8), gib(8)) == [Verdict.FITS]
    assert verdicts(cluster, gib(11), gib(8), gib(8)) == [Verdict.NO_ROOM]
    assert verdicts(cluster, gib(2), Demand(whole=1)) == [Verdict.FITS]
    assert verdicts(cluster, gib(11), Demand(whole=1)) == [Verdict.NO_ROOM]
    assert verdicts(cluster, gib(1), Demand(whole=2)) == [Verdict.TOO_BIG]


def test_compute_counts_on_the_card_of_the_memory() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    cluster.charge("n0", granted("x", Share("n0-0", GI, 80)))
    assert verdicts(cluster, gib(4, compute=20)) == [Verdict.FITS]
    assert verdicts(cluster, gib(4, compute=21)) == [Verdict.NO_ROOM]
    assert verdicts(cluster, gib(4, compute=15), gib(4, compute=6)) == [Verdict.NO_ROOM]


def test_a_percentage_is_of_each_card_however_large() -> None:
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU("a", 0, "X", 2**62), GPU("b", 1, "X", 3)], {})
    third = Demand(Memory(percent=Fraction(100, 3)), gpus=2)
    assert verdicts(cluster, third) == [Verdict.FITS]
    grant = place_pod(cluster, "n", "me", slots(third))
    assert grant is not None
    assert [share.memory for share in grant.slots[0].shares] == [2**62 // 3, 1]


def test_a_new_kind_of_card_is_known_to_wishes_that_were_asked_before() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    wish = Demand(Memory(percent=Fraction(50)), models=("H100",))
    assert verdicts(cluster, wish) == [Verdict.UNKNOWN_MODEL]
    cluster.set_node("h", [GPU("h", 0, "NVIDIA H100", 80 * GI)], {})
    assert verdicts(cluster, wish, nodes=["n0", "h"]) == [Verdict.UNKNOWN_MODEL, Verdict.FITS]


def test_more_cards_and_nodes_than_there_was_place_for_at_first() -> None:
    cluster = ClusterLedger()
    for node in range(200):
        cluster.set_node(f"n{node}", [GPU(f"{node}-{at}", at, "T4", GI) for at in range(node % 20)], {})
    assert verdicts(cluster, Demand(whole=15)) == [
        Verdict.NO_CARDS if node % 20 == 0 else Verdict.FITS if node % 20 >= 15 else Verdict.TOO_BIG
        for node in range(200)
    ]


def test_the_grant_names_slots_in_the_pods_order_with_their_init_containers() -> None:
    cluster = ledger_of_cluster([(16, 16), (16, 16)])
    init = ContainerDemand("warm-up", 2, "native", gib(1), {})
    small, large = gib(1), Demand(whole=1)
    asked = [
        SlotDemand("web", 0, small, (init, ContainerDemand("web", 0, "native", small, {}))),
        SlotDemand("train", 1, large, (ContainerDemand("train", 1, "native", large, {}),)),
    ]
    grant = place_pod(cluster, "n0", "me", asked)
    assert grant is not None
    assert [(slot.container, slot.init) for slot in grant.slots] == [("web", ("warm-up",)), ("train", ())]
    assert grant.slots[1].shares[0].whole
    assert place_pod(cluster, "gone", "me", asked) is None
    assert place_pod(cluster, "n0", "me", []) is None


def test_where_the_policy_puts_the_first_slot_in_the_way_of_the_last_best_fit_decides() -> None:
    """Spread puts 6Gi on the larger card, and then there is room for one of the other two only."""
    cluster = ledger_of_cluster([(6, 16), (10, 16)])
    fitting = [gib(6, placement="spread"), gib(5, placement="spread"), gib(5, placement="spread")]
    assert verdicts(cluster, *fitting) == [Verdict.FITS]
    grant = place_pod(cluster, "n0", "me", slots(*fitting))
    assert grant is not None
    cluster.charge("n0", grant)


@given(fleets(), pods, st.data())
def test_the_matrix_and_the_ledgers_agree_on_every_node(
    cluster: ClusterLedger, demands: list[Demand], data: st.DataObject
) -> None:
    nodes = data.draw(st.lists(st.sampled_from([*cluster.nodes, "never-seen"]), max_size=8))
    assert verdicts(cluster, *demands, nodes=nodes or ["never-seen"]) == [
        slow_verdict(cluster.ledger(node), demands, closed_to(cluster, node, "me"))
        for node in nodes or ["never-seen"]
    ]


@given(fleets(), pods)
def test_a_pod_is_placed_where_it_fits_and_nowhere_else(
    cluster: ClusterLedger, demands: list[Demand]
) -> None:
    for node, verdict in zip(cluster.nodes, verdicts(cluster, *demands), strict=True):
        grant = place_pod(cluster, node, "me", slots(*demands))
        assert (grant is not None) == (verdict == Verdict.FITS)
        if grant is None:
            continue
        taken = {share.uuid for slot in grant.slots for share in slot.shares}
        assert taken.isdisjoint(closed_to(cluster, node, "me"))
        cluster.charge(node, grant)
        cluster.release("me")


def test_placing_charges_nothing() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    for _ in range(3):
        grant = place_pod(cluster, "n0", "me", slots(gib(16)))
    assert grant is not None
    cluster.charge("n0", grant)
    with pytest.raises(NoRoom):
        cluster.charge("n0", granted("other", Share("n0-0", 1)))

"""Which nodes could be opened is the same asked of all at once and of one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kube.scheduling.plain import GI, demands, fleets, gib, granted, ledger_of_cluster

from cotenant.core.demand import Demand
from cotenant.core.grant import Share
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.tenants import LEAVES, STAYS, Tenants
from cotenant.kube.scheduling.victims import Candidate, victims

BELOW = 3


def table(cluster: ClusterLedger, ranks: dict[str, int]) -> Tenants:
    tenants = Tenants(cluster)
    for node in cluster.nodes:
        tenants.add(node, ranks.__getitem__)
    tenants.done()
    return tenants


def openable(cluster: ClusterLedger, ranks: dict[str, int], asked: Sequence[Demand]) -> list[str]:
    rows = np.arange(cluster.matrix.rows, dtype=np.int32)
    found = table(cluster, ranks).openable(asked, BELOW, rows, ["me"])
    return [cluster.name(row) for row in found.tolist()]


def one_by_one(cluster: ClusterLedger, ranks: dict[str, int], asked: Sequence[Demand]) -> dict[str, int]:
    """By node on which anybody is who could go: up to which rank everybody has to."""
    needed = {}
    for node in cluster.nodes:
        there = {uid: ranks[uid] for uid in cluster.pods_on(node)}
        leaving = [uid for uid, rank in there.items() if rank == LEAVES]
        candidates = [Candidate(uid, rank, 0.0) for uid, rank in there.items() if LEAVES < rank < BELOW]
        on_cards = {gpu.uuid for gpu in cluster.gpus(node)}
        if not any(
            share.uuid in on_cards
            for uid in (*leaving, *(each.uid for each in candidates))
            for slot in cluster.pods[uid][1].slots
            for share in slot.shares
        ):
            continue
        found = victims(cluster, node, "me", asked, candidates, leaving=leaving)
        if found is not None:
            needed[node] = max((there[uid] for uid in found), default=LEAVES)
    return needed


@st.composite
def ranked(draw: st.DrawFn) -> tuple[ClusterLedger, dict[str, int]]:
    cluster = draw(fleets())
    some = st.sampled_from([LEAVES, 0, 1, 2, 3, STAYS])
    return cluster, {uid: draw(some) for uid in cluster.pods}


@given(ranked(), demands())
def test_one_container(situation: tuple[ClusterLedger, dict[str, int]], demand: Demand) -> None:
    cluster, ranks = situation
    needed = one_by_one(cluster, ranks, [demand])
    lowest = min((rank for rank in ranks.values() if rank < BELOW), default=0)
    best = max(min(needed.values(), default=0), lowest)
    assert sorted(openable(cluster, ranks, [demand])) == sorted(
        n for n, rank in needed.items() if rank <= best
    )


@given(ranked(), st.lists(demands(), min_size=2, max_size=3))
def test_several_containers_where_it_is_said_so_can_be_given_room(
    situation: tuple[ClusterLedger, dict[str, int]], asked: list[Demand]
) -> None:
    cluster, ranks = situation
    assert set(openable(cluster, ranks, asked)) <= one_by_one(cluster, ranks, asked).keys()


def test_where_most_is_free_comes_first() -> None:
    cluster = ledger_of_cluster([(2, 16)], [(6, 16)], [(4, 16)], [(9, 8)])
    ranks = dict.fromkeys(cluster.pods, 0)
    assert openable(cluster, ranks, [gib(12)]) == ["n1", "n2", "n0"]


def test_those_of_least_rank_are_enough_if_they_are() -> None:
    cluster = ledger_of_cluster([(2, 16)], [(2, 16)])
    ranks = {"on-n0-0": 1, "on-n1-0": 0}
    assert openable(cluster, ranks, [gib(12)]) == ["n1"]
    assert openable(cluster, {**ranks, "on-n1-0": BELOW}, [gib(12)]) == ["n0"]
    assert openable(cluster, {**ranks, "on-n0-0": LEAVES}, [gib(12)]) == ["n0"]
    assert openable(cluster, dict.fromkeys(ranks, STAYS), [gib(12)]) == []
    assert table(cluster, ranks).lowest == 0
    assert table(cluster, dict.fromkeys(ranks, LEAVES)).lowest == STAYS
    assert table(ClusterLedger(), {}).lowest == STAYS


def test_a_cluster_that_has_grown_since_the_table_was_made() -> None:
    cluster = ledger_of_cluster([(2, 16)])
    tenants = table(cluster, {"on-n0-0": 0})
    other = ledger_of_cluster(*[[(2, 16)] * 12] * 100)
    for node in other.nodes:
        cluster.set_node(node, other.gpus(node), {})
    cluster.charge("n50", granted("late", Share("n50-11", 10 * GI)))
    rows = np.arange(cluster.matrix.rows, dtype=np.int32)
    assert tenants.openable([gib(12)], BELOW, rows, ()).tolist() == [0]

"""Which node is best: by the core's measure and its choice among the cards of one machine, over many nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, repeat
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kube.scheduling.plain import (
    GI,
    closed_to,
    demands,
    fleets,
    gib,
    granted,
    ledger_of_cluster,
    seen,
    slots,
    slow_place,
)

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.ledger import Ledger
from cotenant.core.loss import NO_REQUESTS, Requests, Spare
from cotenant.core.placement import place
from cotenant.core.seen_pods import SeenPods
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import in_order
from cotenant.kube.scheduling.placing import outlook, place_pod, put_all, rooms_of
from cotenant.kube.scheduling.ranking import best, best_named, scores, scores_without_gpu
from cotenant.kube.scheduling.scan import Verdict, scan


def scored(
    cluster: ClusterLedger, *asked: Demand, uid: str = "me", beside: Requests = NO_REQUESTS
) -> dict[str, int]:
    found = scores(cluster, uid, asked, cluster.rows(cluster.nodes), beside)
    return dict(zip(cluster.nodes, found.tolist(), strict=True))


def test_binpack_prefers_the_tightest_card_of_all() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(9, 16), (5, 16)], [(6, 16)], [(3, 16)])
    assert scored(cluster, gib(4, placement="binpack")) == {"n0": 8, "n1": 10, "n2": 9, "n3": 0}


def test_spread_prefers_the_emptiest_card_of_all() -> None:
    cluster = ledger_of_cluster([(12, 16)], [(16, 16), (5, 16)], [(6, 16)])
    assert scored(cluster, gib(4, placement="spread"))["n1"] == 10
    two = scored(
        ledger_of_cluster([(8, 16), (8, 16)], [(16, 16), (16, 16)]), gib(4, gpus=2, placement="spread")
    )
    assert two["n1"] == 10


def test_frag_keeps_whole_cards_for_those_who_want_them() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(9, 16)])
    cluster.learned.remember(seen((1000, Demand(whole=1))))
    assert scored(cluster, gib(2)) == {"n0": 9, "n1": 10}


def test_frag_takes_the_room_that_few_others_fit_into() -> None:
    """7Gi would be left on the first card: too little for those who come."""
    cluster = ledger_of_cluster([(9, 16)], [(10, 16)])
    cluster.learned.remember(seen((1000, gib(8))))
    assert scored(cluster, gib(2)) == {"n0": 9, "n1": 10}
    assert scored(cluster, gib(2, placement="binpack")) == {"n0": 10, "n1": 9}


def test_frag_leaves_free_cards_where_there_is_cpu_for_them() -> None:
    cluster = ClusterLedger()
    for name, cpu in (("none-left", 1000), ("plenty", 64000)):
        cluster.set_node(
            name, [GPU(f"{name}-{at}", at, "T4", 16 * GI) for at in range(4)], {}, Spare(cpu, GI)
        )
    busy = SeenPods()
    for _ in range(100):
        busy.add((Demand(whole=1),), 8000)
    cluster.learned.remember(busy)
    row = best(cluster, "me", [gib(4)], cluster.rows(cluster.nodes), Requests(1000))
    assert row is not None
    assert cluster.name(row) == "none-left"
    row = best(cluster, "me", [], cluster.rows(cluster.nodes), Requests(1000))
    assert row is not None
    assert cluster.name(row) == "plenty"  # it has CPU to spare; the other needs all of it for its cards


def test_a_pod_without_gpu_goes_where_there_are_no_gpus_and_else_where_it_strands_least() -> None:
    cluster = ClusterLedger()
    for name, cpu in (("tight", 32000), ("plenty", 64000)):
        cluster.set_node(
            name, [GPU(f"{name}-{at}", at, "T4", 16 * GI) for at in range(4)], {}, Spare(cpu, GI)
        )
    cluster.set_node("plain", [], {}, Spare(8000, GI))
    busy = SeenPods()
    for _ in range(100):
        busy.add((Demand(whole=1),), 8000)
    cluster.learned.remember(busy)

    def found(*names: str) -> list[int]:
        return scores_without_gpu(cluster, cluster.rows(names), Requests(16000)).tolist()

    assert found("tight", "plain", "never-seen", "plenty") == [8, 10, 10, 9]
    assert found("tight", "plenty") == [9, 10]
    assert found("plain") == [10]
    assert found() == []


def test_frag_keeps_a_model_for_those_who_ask_for_it_by_name() -> None:
    cluster = ClusterLedger()
    cluster.set_node("rare", [GPU("a", 0, "H100", 16 * GI), GPU("b", 1, "H100", 16 * GI)], {})
    cluster.set_node("common", [GPU(f"c{at}", at, "T4", 16 * GI) for at in range(8)], {})
    cluster.charge("rare", granted("p", Share("b", 12 * GI)))
    wishes = SeenPods.of([replace(gib(8), models=("H100",))] * 100 + [gib(4)] * 100)
    cluster.learned.remember(SeenPods.of([gib(4)] * 100))
    assert scored(cluster, gib(4)) == {"rare": 10, "common": 9}
    cluster.learned.remember(wishes)
    assert scored(cluster, gib(4)) == {"rare": 9, "common": 10}
    assert scored(cluster, replace(gib(4), models=("H100", "T4")))["rare"] == 10
    cluster.request("p", "rare", Requests(by_name=True))
    assert scored(cluster, gib(4)) == {"rare": 9, "common": 10}


def test_of_equal_cards_the_fuller_node_is_taken_and_then_the_first() -> None:
    cluster = ledger_of_cluster([(16, 16), (16, 16)], [(16, 16), (2, 16)], [(16, 16), (2, 16)])
    assert [node for node, score in scored(cluster, Demand(whole=1)).items() if score == 10] == ["n1"]


def test_where_it_does_not_fit_is_no_rank() -> None:
    cluster = ledger_of_cluster([(1, 16)], [(2, 16)])
    assert scored(cluster, gib(4)) == {"n0": 0, "n1": 0}
    cluster.hold("another", "n1", ["n1-0"])
    assert scored(cluster, gib(1))["n0"] == 10
    assert scores(cluster, "me", [gib(1)], np.array([-1], np.int32)).tolist() == [0]


def test_one_node_has_ten_the_next_nine_to_one_and_the_others_none() -> None:
    cluster = ledger_of_cluster(*([(free, 16)] for free in range(2, 16)))
    found = scored(cluster, gib(2, placement="binpack"))
    assert list(found.values()) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0]


def plain_costs(
    cluster: ClusterLedger, demands: list[Demand], requests: Requests
) -> dict[str, tuple[int, ...] | None]:
    """What each node costs by the core's choice and measure, and for several containers by best fit; None
    where it does not fit.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    for node in cluster.nodes:
        rooms, closed = rooms_of(cluster, node), closed_to(cluster, node, "me")
        view = outlook(cluster, node, demands[0], requests)
        if len(demands) == 1:
            after = put_all(rooms, demands, closed, view)
        else:
            after = put_all(rooms, [replace(each, placement="binpack") for each in in_order(demands)], closed)
        if after is None:
            found[node] = None
            continue
        now = {room.gpu.uuid: room for room in rooms}
        for each, demand in zip(after, in_order(demands), strict=True):
            for share in each:
                gpu = now[share.uuid].gpu
                charged = replace(share, memory=demand.per_card(gpu.memory))
                now[share.uuid] = now[share.uuid].after(charged)
        found[node] = (view.cost(rooms, [now[room.gpu.uuid] for room in rooms]),)
    return found


def check(
    cluster: ClusterLedger,
    asked: list[Demand],
    keys: Mapping[str, tuple[float, ...] | None],
    beside: Requests = NO_REQUESTS,
) -> None:
    found = scored(cluster, *asked, beside=beside)
    fitting = {node: key for node, key in keys.items() if key is not None}
    order = sorted(fitting, key=lambda node: (fitting[node], cluster.rows([node])[0]))
    if order:
        equal = [node for node in order if fitting[node] == fitting[order[0]]]
        at = order.index(min(equal))
        order[0], order[at] = order[at], order[0]
    assert {node: found[node] for node in order} == dict(
        zip(order, chain(range(10, 0, -1), repeat(0)), strict=False)
    )
    assert all(found[node] == 0 for node in keys if node not in fitting)


requests = st.builds(Requests, st.integers(0, 20), st.integers(0, 20))


@settings(max_examples=80)
@given(fleets(most=6), demands(["frag"]), requests)
def test_nodes_are_ranked_by_what_the_core_would_choose_on_each(
    cluster: ClusterLedger, demand: Demand, asked: Requests
) -> None:
    check(cluster, [demand], plain_costs(cluster, [demand], asked), asked)


@settings(max_examples=100)
@given(fleets(most=6), st.lists(demands(["frag"]), min_size=2, max_size=3), requests)
def test_nodes_are_ranked_for_pods_of_several_containers_by_what_all_of_them_cost(
    cluster: ClusterLedger, several: list[Demand], asked: Requests
) -> None:
    check(cluster, several, plain_costs(cluster, several, asked), asked)


def plain_key(ledger: Ledger, demands: list[Demand], closed: set[str]) -> tuple[float, ...] | None:
    """By what is left on the cards taken, their size, and what is free on the node; `spread` by what is free
    on the card, or on the node for several parts.
    """
    spread, free = demands[0].placement == "spread", sum(each.free for each in ledger.room())
    several = len(demands) > 1 or demands[0].count > 1
    if not several:
        shares = place(ledger, demands[0], None, closed)
        if shares is None:
            return None
        room = ledger.room_on(shares[0].uuid)
        left = 0 if shares[0].whole else room.free - shares[0].memory
        return (*((-room.free,) if spread else ()), left, room.gpu.memory, -free if spread else free)
    after = slow_place(ledger, demands, closed)
    if after is None or spread:
        return None if after is None else (-free,)
    left = size = 0
    step = ledger.copy()
    for id, grant in after.grants.items():
        if id not in ledger.grants:
            step.charge(grant)
            left += sum(step.free(share.uuid) for share in grant.shares)
            size += sum(step.room_on(share.uuid).gpu.memory for share in grant.shares)
    return (left, size, free)


@settings(max_examples=100)
@given(fleets(most=6), st.lists(demands(), min_size=1, max_size=3), st.sampled_from(["binpack", "spread"]))
def test_binpack_and_spread_rank_by_what_is_left_and_what_is_free(
    cluster: ClusterLedger, several: list[Demand], placement: str
) -> None:
    several = [replace(demand, placement=placement) for demand in several]
    closed = {node: closed_to(cluster, node, "me") for node in cluster.nodes}
    keys = {node: plain_key(cluster.ledger(node), several, closed[node]) for node in cluster.nodes}
    check(cluster, several, keys)


@given(fleets(most=6), demands(), requests)
def test_the_best_node_is_the_one_with_the_highest_score(
    cluster: ClusterLedger, demand: Demand, asked: Requests
) -> None:
    rows = cluster.rows(cluster.nodes)
    found = scores(cluster, "me", [demand], rows, asked)
    row = best(cluster, "me", [demand], rows, asked)
    assert (row is None) == (not found.any())
    assert row is None or found[rows.tolist().index(row)] == 10


@given(fleets(most=6), demands(), requests, st.data())
def test_of_the_nodes_that_are_named_the_best_is_found_whichever_and_however_many_they_are(
    cluster: ClusterLedger, demand: Demand, asked: Requests, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from([*cluster.nodes, "unknown"]), unique=True))
    rows = cluster.rows(names)
    row = best(cluster, "me", [demand], rows[rows >= 0], asked)
    expected = None if row is None else cluster.name(row)
    assert best_named(cluster, "me", [demand], names, asked) == expected


def test_the_best_of_many_equal_nodes_is_the_first_that_is_named() -> None:
    cluster = ledger_of_cluster(*([(16, 16)] for _ in range(40)))
    every = sorted(cluster.nodes)
    for gone in (0, 3, 4, 15):
        assert best_named(cluster, "me", [gib(4)], every[:gone:-1], NO_REQUESTS) == every[gone + 1]
    assert best_named(ClusterLedger(), "me", [gib(4)], every, NO_REQUESTS) is None


@given(fleets(most=6), demands(), requests)
def test_what_fits_somewhere_gets_a_node_and_the_grant_that_it_was_ranked_by(
    cluster: ClusterLedger, demand: Demand, asked: Requests
) -> None:
    rows = cluster.rows(cluster.nodes)
    fits = scan(cluster, "me", [demand], rows) == Verdict.FITS
    row = best(cluster, "me", [demand], rows, asked)
    assert (row is not None) == fits.any()
    if row is not None:
        grant = place_pod(cluster, cluster.name(row), "me", slots(demand), asked)
        assert grant is not None
        cluster.charge(cluster.name(row), grant)


@given(fleets(most=6), demands(), requests, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_and_cards_arrive_makes_no_difference(
    cluster: ClusterLedger, demand: Demand, asked: Requests, chance: Random
) -> None:
    again = ClusterLedger()
    again.learned.remember(cluster.learned.seen)
    names, pods = list(cluster.nodes), list(cluster.pods)
    chance.shuffle(names)
    chance.shuffle(pods)
    for name in names:
        gpus, ledger = list(cluster.gpus(name)), cluster.ledger(name)
        chance.shuffle(gpus)
        outside = {gpu.uuid: ledger.outside(gpu.uuid) for gpu in gpus if ledger.outside(gpu.uuid)}
        again.set_node(name, gpus, outside, cluster._nodes[name].has)
    for uid in pods:
        again.load(*cluster.pods[uid])
    for uid, (node, beside) in cluster._requests._pods.items():
        again.request(uid, node, beside)
    for uid, (node, cards) in cluster.holds().items():
        again.hold(uid, node, cards)
    rows = [best(each, "me", [demand], each.rows(each.nodes), asked) for each in (cluster, again)]
    found = [
        None if row is None else each.name(row) for row, each in zip(rows, (cluster, again), strict=True)
    ]
    assert found[0] == found[1]


@given(fleets(most=4), st.lists(demands(), max_size=6), st.randoms(use_true_random=False))
def test_what_is_kept_of_losses_is_what_would_be_measured_anew(
    cluster: ClusterLedger, several: list[Demand], chance: Random
) -> None:
    """Releasing undoes charging exactly, in whatever order."""
    first = losses_of(cluster)
    charged = []
    for at, demand in enumerate(several):
        row = best(cluster, f"new-{at}", [demand], cluster.rows(cluster.nodes), Requests(1, 1))
        if row is not None:
            grant = place_pod(cluster, cluster.name(row), f"new-{at}", slots(demand), Requests(1, 1))
            assert grant is not None
            cluster.charge(cluster.name(row), grant)
            cluster.request(f"new-{at}", cluster.name(row), Requests(1, 1, bool(demand.models)))
            charged.append(f"new-{at}")
        assert losses_of(cluster) == {
            name: cluster.learned.loss.on_node(rooms_of(cluster, name), cluster.spare(name))
            for name in cluster.nodes
        }
    chance.shuffle(charged)
    for uid in charged:
        cluster.release(uid)
    assert losses_of(cluster) == first


def losses_of(cluster: ClusterLedger) -> dict[str, int]:
    lost = cluster.learned.losses().lost
    return {
        name: int(lost[row]) for name, row in zip(cluster.nodes, cluster.rows(cluster.nodes), strict=True)
    }


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

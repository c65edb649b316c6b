"""How many more pods fit is counted as they would be placed, each after those before it."""

import numpy as np
from hypothesis import given
from kube.scheduling.plain import amounts, fleets, pods

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.loss import Requests, Spare
from cotenant.core.seen_pods import SeenPods
from cotenant.kube.scheduling.capacity import Capacity
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.lacking import lacks
from cotenant.kube.scheduling.scan import Verdict, scan

GI = 2**30


def all_rows(cluster: ClusterLedger) -> np.ndarray:
    return cluster.rows(cluster.nodes)


def gib(size: int) -> Demand:
    return Demand(Memory(size * GI))


def cards(name: str, *sizes: int) -> list[GPU]:
    return [GPU(f"{name}-{at}", at, "T4", size * GI) for at, size in enumerate(sizes)]


def test_small_pods_go_where_those_who_come_lose_least():
    """By best fit all cards are equal, and the first node would be broken open."""
    cluster = ClusterLedger()
    cluster.set_node("b", cards("b", 16, 16), {})
    cluster.set_node("a", cards("a", 16), {})
    cluster.learned.remember(SeenPods.of([Demand(whole=2)] * 1000))
    capacity = Capacity(cluster, all_rows(cluster))
    assert capacity.take([gib(4)], 4) == 4
    assert capacity.take([Demand(whole=2)], 5) == 1, "the node with two cards was left alone"
    assert capacity.take([gib(1)], 5) == 0


def test_what_is_left_beside_gpus_is_counted():
    cluster = ClusterLedger()
    cluster.set_node("a", cards("a", 16), {}, Spare(4000, 8 * GI, 3))
    capacity = Capacity(cluster, all_rows(cluster))
    assert capacity.take([gib(1)], 9, requests=Requests(5000)) == 0
    assert capacity.take([gib(1)], 9, requests=Requests(1500, GI)) == 2
    assert capacity.take([gib(1)], 9, requests=Requests(0, 7 * GI)) == 0
    assert capacity.take([gib(1)], 9) == 1, "and the node takes no fourth pod"
    assert cluster.matrix.cpu[0] == 4000, "the ledger itself is not changed"


@given(fleets(), pods, amounts, amounts)
def test_something_is_counted_exactly_where_it_fits_somewhere(cluster, asked, cpu, memory):
    rows = all_rows(cluster)
    taken = Capacity(cluster, rows).take(asked, 3, requests=Requests(cpu, memory))
    verdicts = scan(cluster, "new", asked, rows).tolist()
    fits = [
        name
        for name, verdict in zip(cluster.nodes, verdicts, strict=True)
        if verdict == Verdict.FITS and not lacks(cluster.spare(name), Requests(cpu, memory))
    ]
    assert (taken > 0) == bool(fits)
    assert taken <= 3

"""Which free GPU memory typical pods cannot use: the matrix says what the ledgers say, card by card."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.scheduling.plain import GI, fleets, gib, ledger_of_cluster, seen, seen_pods

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.learning import Supply
from cotenant.core.loss import Requests, Spare
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.stranded import Cause, TypicalPod, stranded, typical


def slow(cluster: ClusterLedger, pod: TypicalPod, cordoned: set[str]) -> dict[Cause, int]:
    """The bytes that this pod cannot use."""
    lost = dict.fromkeys(Cause, 0)
    for name in cluster.nodes:
        rooms, spare = (
            [cluster.ledger(name).room_on(gpu.uuid) for gpu in cluster.gpus(name)],
            cluster.spare(name),
        )
        free = sum(room.free for room in rooms)
        for cause, is_so in (
            (Cause.CORDONED, name in cordoned),
            (Cause.PODS, spare.pods < 1),
            (Cause.CPU, spare.cpu < pod.cpu),
            (Cause.MEMORY, spare.memory < pod.memory),
        ):
            if is_so:
                lost[cause] += free
                break
        else:
            named = [room for room in rooms if pod.demand.accepts(room.gpu)]
            fit = [room for room in named if room.fits(pod.demand)]
            lost[Cause.MODEL] += free - sum(room.free for room in named)
            lost[Cause.REMAINDER] += sum(room.free for room in named if room not in fit)
            if len(fit) < pod.demand.count:
                lost[Cause.CARDS] += sum(room.free for room in fit)
    return lost


@given(fleets(), seen_pods, st.sets(st.sampled_from(["n0", "n1"])))
def test_it_is_what_each_node_and_card_says(cluster, statistics, cordoned) -> None:
    pods = typical(statistics, cluster.learned.supply)
    rows = np.array([cluster.name(row) in cordoned for row in range(cluster.matrix.rows)])
    found = stranded(cluster.matrix, pods, rows)
    expected = dict.fromkeys(Cause, 0.0)
    for pod in pods:
        for cause, size in slow(cluster, pod, cordoned).items():
            expected[cause] += pod.share * size
    assert found.causes == pytest.approx(expected)
    assert 0 <= found.bytes <= found.free + 1e-6


@given(seen_pods)
def test_typical_pods_are_a_share_of_what_is_asked_for(statistics) -> None:
    supply = Supply.of([GPU("a", 0, "T4", 16), GPU("b", 1, "A100", 24)])
    pods = typical(statistics, supply)
    asks = any(kind.demand is not None for kind in statistics.counts)
    assert sum(each.share for each in pods) == pytest.approx(1.0 if asks else 0.0)
    assert all(before.share >= after.share for before, after in pairwise(pods))


def test_each_cause_has_its_name() -> None:
    cluster = ledger_of_cluster([(4, 16), (16, 16)])
    pods = typical(seen((1, gib(8))), cluster.learned.supply)
    assert stranded(cluster.matrix, pods).causes[Cause.REMAINDER] == 4 * GI
    two = typical(seen((1, gib(16, gpus=2))), cluster.learned.supply)
    lost = stranded(cluster.matrix, two).causes
    assert (lost[Cause.REMAINDER], lost[Cause.CARDS]) == (4 * GI, 16 * GI)
    whole = typical(seen((1, Demand(whole=1, models=("A100",)))), cluster.learned.supply)
    assert stranded(cluster.matrix, whole).causes[Cause.MODEL] == 20 * GI
    cluster.set_node("n0", cluster.gpus("n0"), {}, Spare(1000, 64 * GI, 2))
    cluster.request("p", "n0", Requests(500, GI))
    (pod,) = pods
    needs = [TypicalPod(pod.demand, 501, 0, 0.5), TypicalPod(pod.demand, 0, 64 * GI, 0.5)]
    lost = stranded(cluster.matrix, needs).causes
    assert (lost[Cause.CPU], lost[Cause.MEMORY], lost[Cause.PODS]) == (10 * GI, 10 * GI, 0)
    cluster.request("q", "n0", Requests())
    assert stranded(cluster.matrix, needs).causes[Cause.PODS] == 20 * GI


def test_without_typical_pods_nothing_is_stranded() -> None:
    cluster = ledger_of_cluster([(4, 16)])
    assert stranded(cluster.matrix, ()).bytes == 0

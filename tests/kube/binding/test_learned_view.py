"""What was learned is shown as it is used: demands with what comes with them, shares, models by name."""

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare
from cotenant.core.seen_pods import SeenPods, pod_kinds
from cotenant.kube.binding.learned_view import view_learned
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.pod_statistics import EndedPods, PodStatistics

GI = 2**30


def test_demands_are_shown_with_their_share_and_what_comes_with_them():
    cluster = ClusterLedger()
    cluster.set_node(
        "n1", [GPU("a", 0, "H100", 80 * GI), GPU("b", 1, "T4", 16 * GI)], {}, Spare(64000, 256 * GI)
    )
    ended = SeenPods()
    for _ in range(30):
        ended.add((Demand(Memory(40 * GI), models=("H100",)),), 8000, 32 * GI)
    ended.add((), 500, GI)
    statistics = PodStatistics(cluster.learned)
    statistics.begin(EndedPods(ended, 31, 1.9e9), {"u1": pod_kinds((Demand(Memory(4 * GI)),), 2000, GI)})
    shown = view_learned(cluster.learned, statistics)
    assert (shown.pods, shown.without_gpu, shown.since, shown.trouble) == (32, 1, 1.9e9, None)
    first, second, *prior = shown.typical
    assert (first.memory, first.models, first.cpu, first.host_memory) == (40 * GI, ("H100",), 8000, 32 * GI)
    assert (first.pods, second.memory, second.pods, second.prior) == (30, 4 * GI, 1, False)
    assert [each.prior for each in prior] == [True] * 3
    assert sum(each.share for each in shown.typical) == pytest.approx(1)
    assert first.share > 0.5
    assert set(shown.models) == {"H100"}
    assert 0 < shown.models["H100"] <= 80 * GI


def test_a_cluster_without_gpus_has_learned_nothing_that_counts():
    cluster = ClusterLedger()
    shown = view_learned(cluster.learned, PodStatistics(cluster.learned))
    assert (shown.pods, shown.typical, shown.models) == (0, (), {})

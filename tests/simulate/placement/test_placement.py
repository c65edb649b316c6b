"""A simulated cluster: who is placed, what is counted, and that the same seed gives the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare
from cotenant.simulate.placement.cluster import DefaultScheduler, SimulatedCluster
from cotenant.simulate.placement.running import Outcome, run
from cotenant.simulate.placement.trace import CARD, MIB, MILLI, read_nodes, read_pods
from cotenant.simulate.placement.workload import (
    Arrival,
    SimulatedNode,
    SimulatedPod,
    inflated,
    with_departures,
)

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
a,64000,262144,2,P100
plain,64000,262144,0,
b,32000,65536,8,T4
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
x,4000,1024,1,460,
y,8000,2048,2,1000,P100|T4
z,1000,512,0,0,
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return tmp_path


def half(cpu: int = 1000) -> SimulatedPod:
    return SimulatedPod((Demand(Memory(bytes=CARD // 2)),), cpu, MIB)


def node(name: str, cards: int, cpu: int = 8000, pods: int = 110) -> SimulatedNode:
    gpus = tuple(GPU(f"{name}-{at}", at, "T4", CARD) for at in range(cards))
    return SimulatedNode(name, gpus, Spare(cpu, 64 * MIB, pods))


def test_a_trace_is_read_with_the_nodes_that_have_gpus(trace: Path) -> None:
    nodes, pods = read_nodes(trace / "nodes.csv"), read_pods(trace / "pods.csv", "binpack")
    assert [(each.name, len(each.gpus), each.has.cpu) for each in nodes] == [("a", 2, 64000), ("b", 8, 32000)]
    assert pods == [
        SimulatedPod((Demand(Memory(bytes=460 * MILLI), placement="binpack"),), 4000, 1024 * MIB),
        SimulatedPod((Demand(whole=2, models=("P100", "T4"), placement="binpack"),), 8000, 2048 * MIB),
        SimulatedPod((), 1000, 512 * MIB),
    ]


def test_a_trace_that_cannot_be_read_names_file_line_and_column(trace: Path) -> None:
    (trace / "pods.csv").write_text(PODS.replace("8000", "eight"))
    with pytest.raises(BadInput, match=r"pods\.csv line 3, column cpu_milli: 'eight' is not a whole number"):
        read_pods(trace / "pods.csv")


def test_pods_are_placed_until_gpu_cpu_or_places_are_used_up() -> None:
    cluster = SimulatedCluster([node("gpu", 1, 64000), node("cpu", 4, 1000), node("places", 4, 64000, 1)])
    placed = [cluster.place(f"p{at}", half()) for at in range(5)]
    assert sorted(each for each in placed if each) == ["cpu", "gpu", "gpu", "places"]
    assert placed[4] is None
    assert cluster.place("whole", SimulatedPod((Demand(whole=1),), 1000, 0)) is None
    cluster.end(f"p{placed.index('places')}")
    assert cluster.place("whole", SimulatedPod((Demand(whole=4),), 0, 0)) == "places"


def test_pods_without_gpu_go_where_kube_scheduler_puts_them_if_it_is_asked() -> None:
    nodes = [node("small", 0, 4000), node("large", 8, 64000)]
    plain = SimulatedPod((), 1000, MIB)
    assert SimulatedCluster(nodes).place("p", plain) == "small"
    assert SimulatedCluster(nodes, DefaultScheduler(nodes, 1)).place("p", plain) == "large"


def test_what_leaves_is_given_back_and_what_is_refused_is_counted() -> None:
    cluster = SimulatedCluster([node("n", 1)])
    arrivals = [Arrival(half(), 2.0), Arrival(half()), Arrival(half()), Arrival(half())]
    outcome = run(cluster, arrivals, CARD)
    # The first leaves before the third comes; the fourth finds no room.
    assert outcome == Outcome(asked=2 * CARD, refused=CARD // 2, allocated=CARD, pods=4)


def test_the_load_is_what_was_asked_for_and_a_seed_repeats_it() -> None:
    pods = [half(), SimulatedPod((Demand(whole=1),), 1000, MIB), SimulatedPod((), 1000, MIB)]
    coming = inflated(pods, 100 * CARD, CARD, 1.3, 7)
    asked = sum(each.pod.bytes(CARD) for each in coming)
    assert 130 * CARD <= asked < 131 * CARD
    assert coming == inflated(pods, 100 * CARD, CARD, 1.3, 7) != inflated(pods, 100 * CARD, CARD, 1.3, 8)
    stays = [each.stays or 0.0 for each in with_departures(pods, 100 * CARD, CARD, 1.0, 7, 20_000)]
    mean = sum(stays) / len(stays)
    assert mean * sum(pod.bytes(CARD) for pod in pods) / len(pods) == pytest.approx(100 * CARD, rel=0.05)

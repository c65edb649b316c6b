"""Why a pod was refused."""

from __future__ import annotations

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare
from cotenant.simulate.placement.cluster import SimulatedCluster
from cotenant.simulate.placement.refused import Lack, lack
from cotenant.simulate.placement.workload import SimulatedNode, SimulatedPod

GI = 2**30


def node(name: str, model: str = "T4", size: int = 16, *, cpu: int = 8000, pods: int = 9) -> SimulatedNode:
    gpus = tuple(GPU(f"{name}-{at}", at, model, size * GI) for at in range(2))
    return SimulatedNode(name, gpus, Spare(cpu, 64 * GI, pods))


def pod(size: int = 4, cpu: int = 1000, memory: int = 1, **wishes: tuple[str, ...]) -> SimulatedPod:
    return SimulatedPod((Demand(Memory(bytes=size * GI), **wishes),), cpu, memory * GI)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (pod(cpu=9000), Lack.CPU),
        (pod(memory=65), Lack.MEMORY),
        (pod(16), Lack.ROOM),
        (pod(17), Lack.SIZE),
        (pod(models=("H100",)), Lack.MODEL),
        (pod(16, models=("A10",)), Lack.SIZE),
        (SimulatedPod((Demand(whole=1),), 0, 0), Lack.ROOM),
        (SimulatedPod((Demand(whole=3),), 0, 0), Lack.SIZE),
        (SimulatedPod((), 9000, 0), Lack.CPU),
        (SimulatedPod((), 0, 65 * GI), Lack.MEMORY),
    ],
)
def test_what_is_missing_is_named(asked: SimulatedPod, reason: Lack) -> None:
    cluster = SimulatedCluster([node("a"), node("b", "A10", 12)])
    for at in range(4):
        assert cluster.place(f"p{at}", pod(10)) is not None
    assert cluster.place("asked", asked) is None
    assert lack(cluster, "asked", asked) == reason


def test_a_model_that_is_full_while_others_have_room() -> None:
    cluster = SimulatedCluster([node("a"), node("b", "A10")])
    for at in range(2):
        assert cluster.place(f"p{at}", SimulatedPod((Demand(whole=1, models=("A10",)),), 0, 0)) == "b"
    asked = pod(models=("A10",))
    assert cluster.place("asked", asked) is None
    assert lack(cluster, "asked", asked) == Lack.MODEL


def test_no_place_for_a_pod_and_a_node_that_takes_none() -> None:
    cluster = SimulatedCluster(
        [node("a", pods=1), SimulatedNode("b", node("b").gpus, Spare(), cordoned=True)]
    )
    assert cluster.place("first", pod()) == "a"
    assert cluster.place("asked", pod()) is None
    assert lack(cluster, "asked", pod()) == Lack.PODS
    assert lack(cluster, "plain", SimulatedPod((), 0, 0)) == Lack.PODS


def test_room_on_cordoned_nodes_alone_is_no_lack_of_size() -> None:
    closed = SimulatedNode("b", node("b", size=80).gpus, Spare(), cordoned=True)
    assert lack(SimulatedCluster([node("a"), closed]), "u", pod(40)) == Lack.CORDONED
    assert lack(SimulatedCluster([closed]), "u", SimulatedPod((), 1000, 0)) == Lack.CORDONED

"""Pods in line whose nodes kube-scheduler has not named: they entered by their status, after a change of leader."""

import asyncio

import pytest
from kube.builders import node_json, pod_json, unschedulable
from kube.line import urgent
from kube.line.line_scene import called, cluster, ends, run, takes
from kube.line.urgent import evicted, runs, tries, waits
from kube.world import World

from cotenant.core.errors import NoRoom


def enters_by_its_status(at: World, name: str, memory: str, **how) -> None:
    body = pod_json(name, memory, **how)
    unschedulable(body)
    at.api.add(body)
    at.line.refill()


def cordon(at: World, name: str, *cards: int) -> None:
    at.api.add_node(node_json(name, *cards) | {"spec": {"unschedulable": True}})


def make_not_ready(at: World, name: str, *cards: int) -> None:
    body = node_json(name, *cards)
    body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    at.api.add_node(body)


def test_a_bind_without_room_does_not_let_pods_be_evicted_on_nodes_that_kube_scheduler_never_named():
    """Its node selector allows n1 alone; room could be made on n2 alone."""

    async def main():
        at = urgent.cluster(n1=(16,), n2=(16, 16))
        await runs(at, "stays", "10Gi", 0, priority=10)
        await runs(at, "low-0", "10Gi", 0, "n2")
        await runs(at, "low-1", "10Gi", 1, "n2")
        enters_by_its_status(at, "selective", "12Gi", priority=10)
        with pytest.raises(NoRoom):
            await at.bind("selective", "n1")
        await asyncio.sleep(5)
        assert evicted(at) == []
        assert called(at) == ["selective"], "kube-scheduler is made to name the nodes"
        tries(at, "selective", "n1")
        await asyncio.sleep(60)
        assert evicted(at) == []

    run(main)


def test_a_bind_without_room_does_not_make_old_knowledge_of_nodes_new():
    async def main():
        at = urgent.cluster()
        await runs(at, "stays-0", "10Gi", 0, priority=10)
        await runs(at, "stays-1", "10Gi", 1, priority=10)
        await waits(at, "urgent")
        await asyncio.sleep(50)
        at.api.drop("stays-1")
        await runs(at, "low", "10Gi", 1)
        at.api.calls.clear()
        with pytest.raises(NoRoom):
            await at.bind("urgent")
        await asyncio.sleep(5)
        assert evicted(at) == []
        assert called(at) == ["urgent"]
        tries(at, "urgent")
        await asyncio.sleep(7)
        assert evicted(at) == ["low"]

    run(main)


@pytest.mark.parametrize("close", [cordon, make_not_ready])
def test_a_node_that_was_closed_when_the_pod_entered_the_line_is_open_to_it_later(close):
    async def main():
        at = cluster()
        takes(at, "x", 16)
        close(at, "n2", 16)
        enters_by_its_status(at, "a", "12Gi")
        await asyncio.sleep(40)
        assert called(at) == []
        at.api.add_node(node_json("n2", 16))
        await asyncio.sleep(16)
        assert called(at)[:1] == ["a"]

    run(main)


@pytest.mark.parametrize("close", [cordon, make_not_ready])
def test_nobody_is_called_for_room_on_a_node_that_was_closed_after_the_pod_entered_the_line(close):
    async def main():
        at = cluster()
        at.api.add_node(node_json("n2", 16))
        takes(at, "x", 16)
        takes(at, "y", 16, node="n2")
        enters_by_its_status(at, "a", "12Gi")
        await asyncio.sleep(3)
        close(at, "n2", 16)
        await asyncio.sleep(2)
        ends(at, "y")
        await asyncio.sleep(40)
        assert called(at) == []
        ends(at, "x")
        await asyncio.sleep(1)
        assert called(at) == ["a"]

    run(main)

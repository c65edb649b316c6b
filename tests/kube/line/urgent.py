"""The scene of a pod of high priority that fits a node by its sums and on no card."""

import asyncio
import json
from datetime import UTC, datetime

from kube.builders import node_json, pod_json
from kube.world import World

from cotenant.dialects import names
from cotenant.kube.extender.messages import Args
from cotenant.kube.line.settings import LineSettings


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cluster(**nodes: tuple[int, ...]) -> World:
    """By default one node with two cards of 16 GiB."""
    loop = asyncio.get_running_loop()
    at = World(LineSettings(), clock=loop.time, wall=lambda: 1.9e9 + loop.time())
    at.api.leaves = lambda: stamp(at.wall() + 30)
    for name, cards in (nodes or {"n1": (16, 16)}).items():
        at.api.add_node(node_json(name, *cards))
    at.running = [asyncio.create_task(each.run()) for each in (at.line, at.preempting, at.recorder)]
    return at


async def runs(at: World, name: str, memory: str | None, card: int, node: str = "n1", **how) -> None:
    """A pod that runs on this very card."""
    uuid = {names.GPU_UUID: f"GPU-{node}-{card}"}
    at.api.add(pod_json(name, memory, annotations={**uuid, **how.pop("annotations", {})}, **how))
    await at.bind(name, node)


def tries(at: World, name: str, *nodes: str) -> list[str]:
    """As kube-scheduler does: it asks where the pod fits, and writes into the pod that it fits nowhere."""
    there = list(nodes) or [node.metadata.name for node in at.api.nodes]
    answer = json.loads(at.decider.filter(Args(at.api.truth(name), node_names=there)))
    if not answer["NodeNames"]:
        said = f"0/{len(there)} nodes are available: " + ", ".join(answer["FailedNodes"].values())
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        at.api.change(name, lambda it: it["status"].update(conditions=[verdict]))
    return answer["NodeNames"]


async def waits(at: World, name: str, memory: str | None = "12Gi", *nodes: str, **how) -> None:
    """A pod for which kube-scheduler has found neither room nor victims."""
    how = {"priority": 10, **how}
    at.api.add(pod_json(name, memory, **how))
    assert tries(at, name, *nodes) == []


def evicted(at: World) -> list[str]:
    return at.api.asked("evict")


def told(at: World, reason: str) -> list[str]:
    return [each["involvedObject"]["name"] for each in at.api.events if each["reason"] == reason]


async def fragmented(at: World) -> None:
    """On each card 10 of 16 GiB are taken: 12 are free by the sum, 6 on a card."""
    await runs(at, "older", "10Gi", 0, created="2030-01-01T00:00:00Z")
    await runs(at, "younger", "10Gi", 1, created="2030-01-02T00:00:00Z")

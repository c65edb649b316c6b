"""A cluster with a line, and pods that take room, end and ask."""

import asyncio
import json

from kube import virtual_time
from kube.builders import GI, node_json
from kube.world import World

from cotenant.dialects.pod_grant import PodGrant, Share, SlotGrant
from cotenant.kube.extender.messages import Args
from cotenant.kube.line.settings import LineSettings


def run(main):
    return virtual_time.run(main())


def cluster(*cards: int, **line) -> World:
    loop = asyncio.get_running_loop()
    at = World(LineSettings(**line), clock=loop.time, wall=lambda: 1.9e9 + loop.time())
    at.api.add_node(node_json("n1", *(cards or (16,))))
    at.running = asyncio.create_task(at.line.run())
    return at


def takes(at: World, name: str, size: int, card: int = 0, node: str = "n1") -> None:
    """A pod that runs there."""
    share = Share(f"GPU-{node}-{card}", size * GI)
    at.cluster.load(node, PodGrant(f"uid-{name}", (SlotGrant("main", (share,)),)))


def ends(at: World, name: str) -> None:
    at.cluster.release(f"uid-{name}")
    at.line.moved()


def asks(at: World, name: str) -> list[str]:
    """As kube-scheduler does: where it fits."""
    pod = at.api.truth(name)
    answer = json.loads(
        at.decider.filter(Args(pod, node_names=[node.metadata.name for node in at.api.nodes]))
    )
    return answer["NodeNames"]


def called(at: World) -> list[str]:
    return at.api.asked("patch")


async def refused_pods(at: World, *pods) -> None:
    for body in pods:
        at.api.add(body)
        assert asks(at, body["metadata"]["name"]) == []
    await asyncio.sleep(0.01)
    assert called(at) == []

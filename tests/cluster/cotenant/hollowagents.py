"""Plays the agents of all hollow nodes: the product's own verdict, condition and Lease, over activity that a test makes up.

What a real agent reads from slots, a test says here by `worked`. All the rest is the agent's own code, one reporter and one
heartbeat a node.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cotenant.kube.agent.idle.heartbeat import Heartbeat
from cotenant.kube.agent.idle.reporting import IdleReporter
from cotenant.kube.agent.idle.rhythm import Rhythm
from cotenant.kube.agent.idle.verdict import Activity
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.watcher import Watcher

from .objects import NAMESPACE

LOOK = 1.0
"""Seconds between two looks, as those of an agent whose pods count as idle after two."""
IDLE = 2.0


@dataclass
class _Agent:
    reporter: IdleReporter
    heartbeat: Heartbeat


@dataclass
class HollowAgents:
    client: Client
    namespace: str
    """Of the pods."""
    nodes: Sequence[str]
    conditions: int = 0
    """How many were written."""
    _last: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """By UID: when a pod last used its GPU, or got it, in CLOCK_MONOTONIC nanoseconds; and whether it ever did."""

    def __post_init__(self) -> None:
        self.pods = Watcher(self.client, PODS, Selection(namespace=self.namespace))

    def worked(self, uid: str) -> None:
        """The pod uses its GPU at this instant."""
        self._last[uid] = time.monotonic_ns(), True

    def running(self) -> dict[str, list[str]]:
        """UIDs of the pods that run, by their label `app`."""
        found: dict[str, list[str]] = {}
        for pod in self.pods.store:
            if _runs(pod):
                found.setdefault(pod.metadata.labels["app"], []).append(pod.metadata.uid)
        return found

    async def run(self) -> None:
        agents = {name: self._agent(await self.client.get(NODES, name)) for name in self.nodes}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            await self.pods.wait_until_synced()
            while True:
                await asyncio.gather(*(self._look(name, agent) for name, agent in agents.items()))
                await asyncio.sleep(LOOK)

    def _agent(self, node: Node) -> _Agent:
        reporter = IdleReporter(
            self.client, self.pods.store, self.pods.resource, Rhythm(IDLE), wrote=self._wrote
        )
        return _Agent(reporter, Heartbeat(self.client, NAMESPACE, lambda: node))

    def _wrote(self, status: str) -> None:
        del status
        self.conditions += 1

    async def _look(self, name: str, agent: _Agent) -> None:
        """As the agent's own part does it (kube/agent/idle/part.py)."""
        now = time.monotonic_ns()
        activities = {}
        for pod in self.pods.store:
            if pod.spec.node_name == name and _runs(pod):
                last, used = self._last.setdefault(pod.metadata.uid, (now, False))
                activities[pod.metadata.uid] = (Activity("main", last, used),)
        true = await agent.reporter.report(activities, now)
        if true and activities and time.monotonic_ns() - now < 5 * 10**9:
            await agent.heartbeat.beat()


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None

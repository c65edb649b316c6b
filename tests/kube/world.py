"""A cluster in memory: an API server whose watch may lag, and Cotenant's parts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kube.builders import GI, typed
from kube.fakeapi import FakeApi, Json, Key

from cotenant.core.gpu import GPU
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.election import NotLeading
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.store import Change, Store
from cotenant.kube.binding.binder import Binder
from cotenant.kube.binding.ledger_feed import LedgerFeed
from cotenant.kube.events import EventRecorder
from cotenant.kube.extender.deciding import Decider
from cotenant.kube.line.evicting import Preempting
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.room_finder import RoomFinder
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger


@dataclass
class WatchedApi(FakeApi):
    """Pods of the namespace `web`, and nodes. `pods` and `nodes` are what the watch has delivered of them: pods at
    once, or when `deliver` is called.
    """

    fully_guarded: bool = False
    pods: Store[Pod] = field(default_factory=Store)
    nodes: Store[Node] = field(default_factory=Store)
    at_once: bool = True
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def events(self) -> list[Json]:
        return [body for body in self.applied if "involvedObject" in body]

    def add(self, body: Json) -> Pod:
        self.put(PODS, body, body["metadata"]["namespace"])
        return self.truth(body["metadata"]["name"])

    def add_node(self, body: Json) -> None:
        self.put(NODES, body)

    def remove_node(self, name: str) -> None:
        self.remove(NODES, name)

    def change(self, name: str, change: Callable[[Json], None]) -> Pod:
        body = self.raw(PODS, name, "web")
        change(body)
        return self.add(body)

    def drop(self, name: str) -> None:
        """The pod is gone."""
        self.remove(PODS, name, "web")

    def deliver(self) -> None:
        """All that the watch has not told yet."""
        while self._waiting:
            self._waiting.pop(0)()

    def relist(self) -> None:
        """What happened unseen is never told, only what there is now."""
        self._waiting.clear()
        self.pods.replace([typed(body) for body in self.all(PODS).values()])

    def truth(self, name: str) -> Pod:
        return typed(self.raw(PODS, name, "web"))

    def _changed(self, key: Key, body: Json) -> None:
        if key.kind == NODES.plural:
            self.nodes.put(self.read(NODES, key.name))
        elif key.kind == PODS.plural:
            pod = typed(body)
            self._tell(lambda: self.pods.put(pod))

    def _removed(self, key: Key, body: Json) -> None:
        if key.kind == NODES.plural:
            node = self.nodes.named(key.name)
            assert node is not None
            self.nodes.remove(node)
        elif key.kind == PODS.plural:
            pod = typed(body)
            self._tell(lambda: self.pods.remove(pod))

    def _tell(self, change: Callable[[], None]) -> None:
        self._waiting.append(change)
        if self.at_once:
            self.deliver()


@dataclass
class Lead:
    """Whether we lead, and for how long."""

    seconds: float = 1e9

    def must(self, seconds: float) -> None:
        if self.seconds <= seconds:
            raise NotLeading("not ours now")


@dataclass
class World:
    line_settings: LineSettings = field(default_factory=LineSettings)
    dialects: Dialects = field(default_factory=Dialects)
    clock: Callable[[], float] = lambda: 0.0
    wall: Callable[[], float] = lambda: 1.9e9

    def __post_init__(self) -> None:
        self.api = WatchedApi()
        self.cluster = ClusterLedger()
        self.lead = Lead()
        self.recorder = EventRecorder(self.api, clock=self.clock)  # type: ignore[arg-type]
        self.line = LineKeeper(
            self.api,  # type: ignore[arg-type]
            self.cluster,
            self.api.pods,
            self.api.nodes,
            self.dialects,
            self.recorder,
            self.line_settings,
            leading=lambda: self.lead.seconds > 0,
            clock=self.clock,
            wall=self.wall,
        )
        self.feed = LedgerFeed(self.api.pods, self.api.nodes, self.cluster)
        self.api.pods.subscribe(self._on_pod)
        self.api.nodes.subscribe(self.line.on_node)
        self.binder = Binder(
            self.api,  # type: ignore[arg-type]
            self.feed,
            self.line,
            self.dialects,
            self.lead.must,
            wall_ns=lambda: 1_900_000_000_000_000_000,
            random=Random(1),
        )
        finder = RoomFinder(self.cluster, self.api.pods, self.api.nodes, self.line, self.wall)
        self.preempting = Preempting(
            self.api,  # type: ignore[arg-type]
            self.line,
            finder,
            self.recorder,
            self.lead.must,
            self.clock,
        )
        self.decider = Decider(self.cluster, self.api.pods, self.api.nodes, self.dialects, self.line)

    def _on_pod(self, change: Change[Pod]) -> None:
        self.line.on_pod(change)
        if change.kind == "deleted":
            self.recorder.forget(change.object.metadata.uid)

    async def bind(self, pod: str | Pod, node: str = "n1") -> None:
        pod = self.api.truth(pod) if isinstance(pod, str) else pod
        meta = pod.metadata
        await self.binder.bind(meta.namespace, meta.name, meta.uid, node)

    async def settled(self) -> None:
        """Until no bind is in doubt."""
        for _ in range(50):
            await asyncio.sleep(0)
        while self.binder._doubts:
            await asyncio.wait(list(self.binder._doubts.values()))
            await asyncio.sleep(0)

    def charged(self) -> dict[str, str]:
        """UID to node."""
        return {uid: node for uid, (node, _) in self.cluster.pods.items()}

    def free(self, node: str = "n1") -> list[int]:
        """GiB by card."""
        ledger = self.cluster.ledger(node)
        return [ledger.free(gpu.uuid) // GI for gpu in sorted(ledger.gpus, key=lambda gpu: gpu.index)]


def gpu(node: str, at: int, size: int) -> GPU:
    return GPU(f"GPU-{node}-{at}", at, "NVIDIA A100", size * GI)

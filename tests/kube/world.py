"""A cluster in memory: an API server that keeps the rules of Binding and of guarded patches, and Cotenant's parts on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from cotenant.core.gpu import GPU
from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.election import NotLeading
from cotenant.kube.api.errors import Conflict, KubeError, NotFound, Unreachable
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import EVENTS, PODS
from cotenant.kube.api.store import Change, Store
from cotenant.kube.binding.binder import Binder
from cotenant.kube.binding.ledger_feed import LedgerFeed
from cotenant.kube.events import EventRecorder
from cotenant.kube.extender.deciding import Decider
from cotenant.kube.line.evicting import Preempting
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.room_finder import RoomFinder
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.nodes.gpus import VERSION, NodeCard, NodeGpus, write_gpus
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

GI = 2**30
MEMORY = names.GPU_MEMORY
Json = dict[str, Any]
Fate = Callable[["Api", Callable[[], None]], Awaitable[None]]
"""What becomes of a request that would do `act`: it acts or not, answers or raises."""


def pod_json(
    name: str,
    memory: str | None = "4Gi",
    *,
    uid: str | None = None,
    priority: int = 0,
    created: str = "2030-01-01T00:00:00Z",
    node: str = "",
    annotations: dict[str, str] | None = None,
    **resources: str,
) -> Json:
    asked = {
        **({} if memory is None else {MEMORY: memory}),
        **{k.replace("__", "/"): v for k, v in resources.items()},
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "web",
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": created,
            "annotations": annotations or {},
        },
        "spec": {
            "nodeName": node,
            "priority": priority,
            "containers": [{"name": "main", "resources": {"limits": asked, "requests": asked}}],
        },
        "status": {"phase": "Pending"},
    }


def node_json(name: str, *cards: int, outside: dict[int, int] | None = None, **allocatable: str) -> Json:
    """Cards by their GiB."""
    told = NodeGpus(
        VERSION,
        tuple(
            NodeCard(
                f"GPU-{name}-{at}", at, "NVIDIA A100", size * GI, outside=(outside or {}).get(at, 0) * GI
            )
            for at, size in enumerate(cards)
        ),
    )
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "annotations": {names.GPUS: write_gpus(told)},
        },
        "status": {
            "allocatable": {"cpu": "64", "pods": "110", MEMORY: f"{sum(cards)}Gi", **allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def unschedulable(body: Json) -> None:
    body["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


@dataclass
class Api:
    """The truth. `told` is what the watch has delivered of it: all at once, or when `deliver` is called."""

    pods: Store[Pod] = field(default_factory=Store)
    nodes: Store[Node] = field(default_factory=Store)
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    at_once: bool = True
    fates: dict[str, list[Fate]] = field(default_factory=dict)
    """By verb, for the next requests in order; without one a request is carried out and answered."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    leaves: Callable[[], str] = lambda: "2040-01-01T00:00:00Z"
    """By when a pod that is evicted now has ended."""
    _version: int = 1
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def add(self, body: Json) -> Pod:
        meta = body["metadata"]
        self.objects[meta["namespace"], meta["name"]] = body
        return self.change(meta["name"], lambda _: None)

    def add_node(self, body: Json) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.nodes.put(msgspec.convert(json.loads(json.dumps(body)), Node))

    def remove_node(self, name: str) -> None:
        node = self.nodes.named(name)
        assert node is not None
        self.nodes.remove(node)

    def change(self, name: str, change: Callable[[Json], None]) -> Pod:
        body = self.objects["web", name]
        change(body)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        pod = typed(body)
        self._tell(lambda: self.pods.put(pod))
        return pod

    def delete(self, name: str) -> None:
        pod = typed(self.objects.pop(("web", name)))
        self._tell(lambda: self.pods.remove(pod))

    def deliver(self) -> None:
        """All that the watch has not told yet."""
        while self._waiting:
            self._waiting.pop(0)()

    def relist(self) -> None:
        """What happened unseen is never told, only what there is now."""
        self._waiting.clear()
        self.pods.replace([typed(body) for body in self.objects.values()])

    def truth(self, name: str) -> Pod:
        return typed(self.objects["web", name])

    def count(self, verb: str) -> int:
        return sum(each == verb for each, _ in self.asked)

    async def get(self, resource, name, namespace, *, within):
        assert resource is PODS
        await self._meet("get", name, lambda: None)
        return typed(self._find(name, namespace))

    async def bind(self, name, namespace, node, *, guard, annotations, within):
        def act() -> None:
            body = self._find(name, namespace)
            _check(body, guard)
            if body["spec"]["nodeName"]:
                raise Conflict("already assigned", code=409)

            def bound(it: Json) -> None:
                it["spec"]["nodeName"] = node
                it["metadata"]["annotations"] = {**it["metadata"]["annotations"], **annotations}

            self.change(name, bound)

        await self._meet("bind", name, act)

    async def merge_patch(self, resource, name, changes, namespace, *, guard, within):
        assert resource is PODS

        def act() -> None:
            _check(self._find(name, namespace), guard)
            self.change(
                name, lambda it: it["metadata"]["annotations"].update(changes["metadata"]["annotations"])
            )

        await self._meet("patch", name, act)
        return typed(self._find(name, namespace))

    async def evict(self, name, namespace, *, guard, dry_run=False, within):
        """The pod leaves when somebody deletes it: its containers take their time."""

        def act() -> None:
            body = self._find(name, namespace)
            _check(body, guard)
            if not dry_run and "deletionTimestamp" not in body["metadata"]:
                self.change(name, lambda it: it["metadata"].update(deletionTimestamp=self.leaves()))

        await self._meet("ask" if dry_run else "evict", name, act)

    async def apply(self, resource, body, manager, namespace, *, force, within):
        assert resource is EVENTS
        assert namespace == body["involvedObject"]["namespace"]
        await self._meet("event", body["metadata"]["name"], lambda: self.events.append(body))

    async def _meet(self, verb: str, name: str, act: Callable[[], None]) -> None:
        self.asked.append((verb, name))
        await asyncio.sleep(0)
        fates = self.fates.get(verb)
        if fates:
            await fates.pop(0)(self, act)
        else:
            act()

    def _find(self, name: str, namespace: str) -> Json:
        try:
            return self.objects[namespace, name]
        except KeyError:
            raise NotFound(f"no pod {namespace}/{name}", code=404) from None

    def _tell(self, change: Callable[[], None]) -> None:
        self._waiting.append(change)
        if self.at_once:
            self.deliver()


def typed(body: Json) -> Pod:
    return msgspec.json.decode(json.dumps(body), type=Pod)


def _check(body: Json, guard) -> None:
    meta = body["metadata"]
    if guard.uid and guard.uid != meta["uid"]:
        raise Conflict("another uid", code=409)
    if guard.resource_version and guard.resource_version != meta["resourceVersion"]:
        raise Conflict("a newer state", code=409)


def refused(error: KubeError) -> Fate:
    async def fate(api, act):
        raise error

    return fate


def lost(*, before: bool = False) -> Fate:
    """No answer: it was carried out, or (`before`) never arrived."""

    async def fate(api, act):
        if not before:
            act()
        raise Unreachable("not in time", uncertain=True)

    return fate


def withheld(by: list[Callable[[], object]]) -> Fate:
    """No answer: it lies in a buffer, and arrives when somebody does what is found there."""

    async def fate(api, act):
        by.append(act)
        raise Unreachable("not in time", uncertain=True)

    return fate


def after(do: Callable[[Api], None]) -> Fate:
    """Something happens just before it is carried out."""

    async def fate(api, act):
        do(api)
        act()

    return fate


def hangs(until: asyncio.Event, then: Fate | None = None) -> Fate:
    async def fate(api, act):
        await until.wait()
        if then is None:
            act()
        else:
            await then(api, act)

    return fate


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
        self.api = Api()
        self.cluster = ClusterLedger()
        self.lead = Lead()
        self.teller = EventRecorder(self.api, clock=self.clock)  # type: ignore[arg-type]
        self.line = LineKeeper(
            self.api,  # type: ignore[arg-type]
            self.cluster,
            self.api.pods,
            self.api.nodes,
            self.dialects,
            self.teller,
            self.line_settings,
            leading=lambda: self.lead.seconds > 0,
            clock=self.clock,
            wall=self.wall,
        )
        self.keeper = LedgerFeed(self.api.pods, self.api.nodes, self.cluster)
        self.api.pods.subscribe(self._on_pod)
        self.api.nodes.subscribe(lambda _: self.line.moved())
        self.binder = Binder(
            self.api,  # type: ignore[arg-type]
            self.keeper,
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
            self.teller,
            self.lead.must,
            self.clock,
        )
        self.decider = Decider(self.cluster, self.api.pods, self.api.nodes, self.dialects, self.line)

    def _on_pod(self, change: Change[Pod]) -> None:
        self.line.on_pod(change)
        if change.kind == "deleted":
            self.teller.forget(change.object.metadata.uid)

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

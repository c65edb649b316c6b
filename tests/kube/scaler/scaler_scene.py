"""Workloads whose replicas hold GPUs, in a cluster in memory, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kube.builders import GI, node_json, pod_json, unschedulable
from kube.fakeapi import Json, Key
from kube.virtual_time import run
from kube.world import WatchedApi, World

from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.kube.api.objects import Lease, LeaseSpec, Meta
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.store import Store
from cotenant.kube.nodes.agent_reports import AgentReports, lease_of
from cotenant.kube.scaler.demand import Demand
from cotenant.kube.scaler.release import Releasing
from cotenant.kube.scaler.replicas import ReplicaIndex
from cotenant.kube.scaler.workload import WATCHED, Workload

START = 1_900_000_000.0
BY_KIND = {each.kind: each for each in WATCHED}


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ScalerApi(WatchedApi):
    """Workloads are watched too."""

    workloads: dict[str, Store[Workload]] = field(
        default_factory=lambda: {each.plural: Store() for each in WATCHED}
    )

    def _changed(self, key: Key, body: Json) -> None:
        super()._changed(key, body)
        for each in WATCHED:
            if key.kind == each.plural:
                self.workloads[key.kind].put(self.read(each, key.name, key.namespace))

    def _removed(self, key: Key, body: Json) -> None:
        super()._removed(key, body)
        store = self.workloads.get(key.kind)
        gone = None if store is None else store.named(key.name, key.namespace)
        if store is not None and gone is not None:
            store.remove(gone)


@dataclass
class Scene:
    now: float = START
    said: list[tuple[str, str, str]] = field(default_factory=list)
    """Events: name, reason, text."""
    renewals: int = 0

    def __post_init__(self) -> None:
        self.world = World(clock=lambda: self.now - START, wall=lambda: self.now)
        api = ScalerApi()
        api.objects, api.pods, api.nodes = self.world.api.objects, self.world.api.pods, self.world.api.nodes
        for user in (self.world.line, self.world.recorder, self.world.binder):
            user.client = api  # type: ignore[assignment]
        self.world.api = self.api = api
        self.leases: Store[Lease] = Store()
        self.agents = AgentReports(self.leases, clock=lambda: self.now, wall=lambda: self.now)
        self.index = ReplicaIndex(api.pods, self.agents.gone, self.agents.silent)
        self.demand = Demand(self.world.cluster, self.world.line, api.pods)
        self.scaled_by: Callable[..., str | None] = lambda *_: None
        self.releasing = Releasing(
            api,  # type: ignore[arg-type]
            [(each, api.workloads[each.plural]) for each in WATCHED],
            self.index,
            self,  # type: ignore[arg-type]
            self.world.lead.must,
            scaled_by=lambda *of: self.scaled_by(*of),
        )

    def record(self, object: Any, reason: str, message: Any, *_: Any, **__: Any) -> None:
        """As an EventRecorder."""
        self.said.append((object.metadata.name, reason, message if isinstance(message, str) else message()))

    def about(self, name: str) -> list[tuple[str, str]]:
        return [(reason, text) for who, reason, text in self.said if who == name]

    def node(self, name: str, *cards: int) -> None:
        """With an agent that reports."""
        self.api.put(NODES, node_json(name, *cards))
        self.agent(name)

    def agent(self, node: str) -> None:
        """It reports."""
        self.renewals += 1
        at = datetime.fromtimestamp(self.now, UTC)
        name = lease_of(node)
        self.leases.put(
            Lease(Meta(name, uid=name, resource_version=str(self.renewals)), LeaseSpec(renew_time=at))
        )

    def later(self, seconds: float) -> None:
        """Time passes, and agents report."""
        self.now += seconds
        for node in self.api.nodes:
            self.agent(node.metadata.name)

    def workload(
        self, name: str, replicas: int = 1, kind: str = "Deployment", owner: str = "", **annotations: str
    ) -> None:
        """`threshold` and `wanted` are annotations; others are given as they are."""
        short = {
            "threshold": names.SCALE_DOWN_THRESHOLD,
            "wanted": names.SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT,
            "released": names.RELEASED_REPLICAS,
        }
        selector: Json = {"app": name}
        body: Json = {
            "metadata": {
                "name": name,
                "annotations": {short.get(key, key): text for key, text in annotations.items()},
            },
            "spec": {
                "replicas": replicas,
                "selector": selector if kind == "ReplicationController" else {"matchLabels": selector},
                "template": {"spec": pod_json(name)["spec"]},
            },
        }
        if owner:
            body["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": owner, "controller": True}]
        self.api.put(BY_KIND[kind], body, "web")

    def replica(
        self,
        of: str,
        name: str = "",
        *,
        node: str = "n1",
        card: int | None = 0,
        memory: int = 4,
        ready: bool = True,
        bound: float = 0.0,
        idle: float | None = None,
        works: bool = False,
        unknown: str = "",
        priority: int = 0,
    ) -> str:
        """A pod of the workload. `bound` and `idle`: how many seconds ago it got its GPU and used it last."""
        name = name or f"{of}-0"
        body = pod_json(name, f"{memory}Gi", node=node if card is not None else "", priority=priority)
        body["metadata"]["labels"] = {"app": of}
        conditions: list[Json] = []
        if card is None:
            unschedulable(body)
            conditions = body["status"]["conditions"]
        else:
            share = Share(f"GPU-{node}-{card}", memory * GI)
            grant = PodGrant(body["metadata"]["uid"], (SlotGrant("main", (share,)),))
            body["metadata"]["annotations"][names.GRANT] = write_grant(grant)
            body["status"]["phase"] = "Running"
            at = stamp(self.now - bound)
            conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]
            if ready:
                conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": at})
        if idle is not None:
            conditions.append(_idle("True", stamp(self.now - idle)))
        elif works:
            conditions.append(_idle("False", stamp(self.now)))
        elif unknown:
            conditions.append({**_idle("Unknown", stamp(self.now)), "message": unknown})
        body["status"]["conditions"] = conditions
        self.api.add(body)
        return name

    def waits(self, name: str, memory: str = "4Gi", **spec: Any) -> None:
        """A pod of nobody's, in line."""
        body = pod_json(name, memory, **spec)
        unschedulable(body)
        self.api.add(body)

    def round(self) -> None:
        """As the part does it."""

        async def work() -> None:
            idle = self.releasing.releasable(self.now)
            wanted = self.demand.wanted([each.holder(self.now) for each in idle])
            for each in idle:
                by = wanted.get(each.workload.metadata.uid)
                if self.releasing.due(each, self.now, by):
                    await self.releasing.release(each, self.now, by)
            await self.releasing.bring_back()

        run(work())

    def replicas(self, name: str, kind: str = "Deployment") -> int:
        replicas: int = self.api.raw(BY_KIND[kind], name, "web")["spec"]["replicas"]
        return replicas

    def note(self, name: str, kind: str = "Deployment") -> str | None:
        annotations: Json = self.api.raw(BY_KIND[kind], name, "web")["metadata"]["annotations"]
        return annotations.get(names.RELEASED_REPLICAS)

    def change(self, name: str, do: Callable[[Json], None], kind: str = "Deployment") -> None:
        body = self.api.raw(BY_KIND[kind], name, "web")
        do(body)
        self.api.put(BY_KIND[kind], body, "web")

    def patches(self) -> int:
        return sum(write.startswith("patch ") for write in self.api.writes)

    def ends(self, name: str) -> None:
        """A pod is gone."""
        self.api.remove(PODS, name, "web")


def _idle(status: str, at: str) -> Json:
    return {"type": names.GPU_IDLE, "status": status, "lastTransitionTime": at}

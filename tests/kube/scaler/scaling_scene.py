"""GpuScalers over a queue that a test fills, and replicas that come, load, work and go as Kubernetes has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kube.fakeapi import Json, Key
from kube.scaler.scaler_scene import BY_KIND, START, ScalerApi, Scene, stamp
from kube.virtual_time import run

from cotenant.dialects.registry import Dialects
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Store
from cotenant.kube.scaler.acting import Acting
from cotenant.kube.scaler.conflicts import HPAS, SCALED_OBJECTS, Conflicts
from cotenant.kube.scaler.replicas import removal_order
from cotenant.kube.scaler.resource import GPU_SCALERS, GpuScaler
from cotenant.kube.scaler.room import Room
from cotenant.kube.scaler.rounds import Rounds
from cotenant.kube.scaler.targets import Targets
from cotenant.kube.scaler.workload import WATCHED
from cotenant.scaling.sampling import Failure, Readings
from cotenant.signals.signal import Reading

QUEUE: Json = {"redis": {"url": "redis://queue:6379", "list": "q"}, "inFlight": {"list": "q:work"}}


@dataclass
class Queue:
    """What a queue says; `failed` in place of it."""

    backlog: float = 0.0
    in_flight: float = 0.0
    failed: tuple[str, str] | None = None
    closed: bool = False
    reads: int = 0
    now: Any = None

    async def read(self, within: float) -> Readings:
        del within
        self.reads += 1
        if self.failed is not None:
            return Readings(failures=(Failure(*self.failed),))
        return Readings(Reading(self.now(), self.backlog, None, None, self.in_flight))

    async def close(self) -> None:
        self.closed = True


@dataclass
class WithScalers(ScalerApi):
    scalers: Store[GpuScaler] = field(default_factory=Store)
    hpas: Store[Any] = field(default_factory=Store)

    def _changed(self, key: Key, body: Json) -> None:
        super()._changed(key, body)
        if key.kind == GPU_SCALERS.plural:
            self.scalers.put(self.read(GPU_SCALERS, key.name, key.namespace))
        if key.kind == HPAS.plural:
            self.hpas.put(self.read(HPAS, key.name, key.namespace))

    def _removed(self, key: Key, body: Json) -> None:
        super()._removed(key, body)
        for resource, store in ((GPU_SCALERS, self.scalers), (HPAS, self.hpas)):
            gone = store.named(key.name, key.namespace) if key.kind == resource.plural else None
            if gone is not None:
                store.remove(gone)


@dataclass
class ScalingScene(Scene):
    poll: float = 5.0
    cold: float = 20.0
    """Seconds that a replica loads."""
    queues: dict[str, Queue] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        api = WithScalers()
        for name in ("objects", "pods", "nodes", "workloads"):
            setattr(api, name, getattr(self.api, name))
        self.world.api = self.api = api
        self.releasing.client = api  # type: ignore[assignment]
        self.world.line.client = api  # type: ignore[assignment]
        self.lead()

    def lead(self) -> None:
        """Another server begins to lead: it knows nothing but what the API server has."""
        api = self.api
        watched = [(each, api.workloads[each.plural]) for each in WATCHED]
        self.conflicts = Conflicts(api, api.hpas)  # type: ignore[attr-defined, arg-type]
        self.targets = Targets(api, watched, self.world.lead.must, clock=lambda: self.now)  # type: ignore[arg-type]
        acting = Acting(
            api,  # type: ignore[arg-type]
            self.targets,
            self.world.line,
            self,  # type: ignore[arg-type]
            self.world.lead.must,
            lambda: self.now,
        )
        self.rounds = Rounds(
            api.scalers,  # type: ignore[attr-defined]
            self.targets,
            self.index,
            self.conflicts,
            acting,
            Dialects(),
            lambda: Room(self.world.cluster, self.api.nodes),
            lambda name: self.classes.get(name, 0),
            lambda one: self.queue(one.scaler.metadata.name),  # type: ignore[arg-type, return-value]
            self.poll,
            lambda: self.now,
            lambda: self.now,
        )

    def queue(self, name: str = "a") -> Queue:
        return self.queues.setdefault(name, Queue(now=lambda: self.now))

    def scaler(self, name: str = "a", target: str = "", kind: str = "Deployment", **spec: Any) -> None:
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        aim = {"apiVersion": version, "kind": kind, "name": target or name}
        body: Json = {
            "metadata": {
                "name": name,
                "generation": 1,
                "creationTimestamp": stamp(self.now + len(self.queues)),
            },
            "spec": {
                "target": aim,
                "replicas": {"min": 0, "max": 8},
                "backlog": {"queue": QUEUE, "processingTime": {"fixed": "800ms"}},
                **spec,
            },
        }
        self.queue(name)
        self.api.put(GPU_SCALERS, body, "web")

    def status(self, name: str = "a") -> Json:
        status: Json = self.api.raw(GPU_SCALERS, name, "web").get("status", {})
        return status

    def condition(self, type_: str, name: str = "a") -> tuple[str, str, str]:
        (found,) = [each for each in self.status(name)["conditions"] if each["type"] == type_]
        return found["status"], found["reason"], found["message"]

    def poll_once(self) -> None:
        async def work() -> None:
            self.conflicts.look()
            considered = await self.rounds.look()
            idle = self.releasing.releasable(self.now)
            holders = [*self.rounds.holders(considered), *(each.holder(self.now) for each in idle)]
            wanted = self.demand.wanted(holders)
            await self.rounds.act(considered, wanted)

        run(work())

    def play(self, seconds: float, *names: str, service: float = 0.8, step: float = 1.0) -> list[int]:
        """Time passes: replicas come and load, work is done, and every `poll` seconds there is a round. Returns the
        replicas of the first after each second.
        """
        names = names or ("a",)
        trace = []
        for _ in range(int(seconds / step)):
            for name in names:
                self.kubernetes(name)
                self.work(name, step, service)
            if (self.now - START) % self.poll < step:
                self.poll_once()
            trace.append(self.replicas(names[0]))
            self.later(step)
        return trace

    def kubernetes(self, name: str) -> None:
        """Makes the pods what the workload wants: bound at once if there is room, ready after the cold start."""
        there = [self.index.replica(pod) for pod in self.api.pods if pod.metadata.labels.get("app") == name]
        wanted = self.replicas(name)
        for each in removal_order(there)[: max(0, len(there) - wanted)]:
            self.ends(each.pod.metadata.name)
        for _ in range(wanted - len(there)):
            self.made += 1
            self.replica(name, f"{name}-{self.made}", card=self.free_card(), ready=False, memory=12)
        for each in there[:wanted] if wanted >= len(there) else ():
            self._goes_on(each.pod.metadata.name)

    def _goes_on(self, pod: str) -> None:
        body = self.api.raw(PODS, pod, "web")
        scheduled = next(each for each in body["status"]["conditions"] if each["type"] == "PodScheduled")
        if scheduled["status"] != "True":
            card = self.free_card()
            if card is not None:
                self.ends(pod)
                self.replica(pod.rpartition("-")[0], pod, card=card, ready=False, memory=12)
            return
        at = datetime.strptime(scheduled["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        ready = any(each["type"] == "Ready" for each in body["status"]["conditions"])
        if not ready and self.now - at.timestamp() >= self.cold:
            body["status"]["conditions"] += [
                {"type": "Ready", "status": "True", "lastTransitionTime": stamp(self.now)},
                {"type": "cotenant.dev/GPUIdle", "status": "True", "lastTransitionTime": stamp(self.now)},
            ]
            self.api.add(body)

    def free_card(self) -> int | None:
        """A card of n1 with room for another replica."""
        free = self.world.free()
        return next((at for at, left in enumerate(free) if left >= 12), None)

    def ready(self, name: str) -> int:
        pods = [pod for pod in self.api.pods if pod.metadata.labels.get("app") == name]
        return sum(self.index.replica(pod).ready is not None for pod in pods)

    def backlog_seconds(self, name: str, service: float = 0.8) -> float:
        return self.queue(name).backlog * service / max(1, self.ready(name))

    def work(self, name: str, seconds: float, service: float) -> None:
        queue = self.queue(name)
        ready = self.ready(name)
        done = min(queue.backlog + queue.in_flight, ready * seconds / service)
        left = queue.backlog + queue.in_flight - done
        queue.in_flight = min(left, float(ready))
        queue.backlog = left - queue.in_flight
        for pod in [pod.metadata.name for pod in self.api.pods if pod.metadata.labels.get("app") == name]:
            self._agent_writes(self.api.raw(PODS, pod, "web"), works=done > 0)

    def _agent_writes(self, body: Json, *, works: bool) -> None:
        for each in body["status"]["conditions"]:
            status = "False" if works else "True"
            if each["type"] == "cotenant.dev/GPUIdle" and each["status"] != status:
                each.update(status=status, lastTransitionTime=stamp(self.now))
                self.api.add(body)

    def hpa(self, name: str, target: str = "a") -> None:
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
        self.api.put(HPAS, {"metadata": {"name": name}, "spec": {"scaleTargetRef": ref}}, "web")

    def scaled_object(self, name: str, target: str = "a") -> None:
        body = {"metadata": {"name": name}, "spec": {"scaleTargetRef": {"name": target}}}
        self.api.put(SCALED_OBJECTS, body, "web")


__all__ = ["BY_KIND", "QUEUE", "Queue", "ScalingScene"]

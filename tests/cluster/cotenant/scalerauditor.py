"""Watches scaled workloads as a judge that reads only the API, and what their queues have had.

Every version of a workload, a pod and a GpuScaler that the API server shows is recorded; what is wrong with them is said by
`scalerrules.py`, at once for bounds, at the end for the rest.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from cluster.testbed.api import Api, Object

from .manifests import pods_of
from .redisqueues import Message
from .scaledworkloads import GROUPS, ScaledWorkload, by_name, kind_path, scalers_path
from .scalerrules import (
    LAG,
    PodRecord,
    PodVersion,
    Step,
    margin,
    out_of_bounds,
    released_at_work,
    released_not_idle,
    woken_by_nobody,
    woken_without_work,
)
from .watching import watch
from .worktraffic import Attempt, Work

IDLE = "cotenant.dev/GPUIdle"
DECIDED = 10.0
"""Seconds. A scaler's state is written that long before its decision is carried out, at most."""


@dataclass
class Verdict:
    violations: list[str] = field(default_factory=list)
    released: dict[str, int] = field(default_factory=lambda: {"scaler": 0, "annotation": 0})
    woken: dict[str, int] = field(default_factory=lambda: {"scaler": 0, "annotation": 0})
    margins: list[float] = field(default_factory=list)
    """Of releases by scalers."""
    unseen: list[float] = field(default_factory=list)
    """For how many seconds a program had used a GPU when it was released: its agent had not written that yet."""


class ScalerAuditor:
    def __init__(self, api: Api, namespace: str, workloads: Sequence[ScaledWorkload]) -> None:
        self._api, self._namespace = api, namespace
        self._workloads = by_name(workloads)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._replicas: dict[str, int] = {}
        self._pods: dict[str, PodRecord] = {}
        self._idle: dict[str, list[tuple[float, int]]] = {}
        """When a scaler said that it was idle, and how many replicas it then wanted."""
        self._wrong: list[str] = []
        self.steps: dict[str, list[Step]] = {}
        self.versions = 0
        self.relists = 0

    def __enter__(self) -> Self:
        watched: list[tuple[str, Callable[[Object, bool], None]]] = [
            (pods_of(self._namespace), self._pod),
            (scalers_path(self._namespace), self._scaler),
            *((kind_path(kind, self._namespace), self._workload) for kind in GROUPS),
        ]
        for path, one in watched:
            threading.Thread(target=self._follow, args=(path, one), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def known(self) -> dict[str, int]:
        """The replicas that each workload is to have, as seen until now."""
        with self._lock:
            return dict(self._replicas)

    def idle_pods(self) -> int:
        """How many were seen idle."""
        with self._lock:
            return sum(
                any(each.idle_since is not None for each in pod.versions) for pod in self._pods.values()
            )

    def judge(
        self,
        messages: Mapping[str, Sequence[Message]],
        attempts: Sequence[Attempt] = (),
        works: Sequence[Work] = (),
    ) -> Verdict:
        """`messages`: all that each queue has had. `attempts`: whom somebody has asked to be woken. `works`: what ran on GPUs."""
        with self._lock:
            verdict = Verdict(list(self._wrong))
            for name, steps in self.steps.items():
                self._judge(self._workloads[name], steps, messages.get(name, ()), attempts, verdict)
                verdict.unseen += self._unseen(self._workloads[name], steps, works)
            return verdict

    def _judge(
        self,
        workload: ScaledWorkload,
        steps: Sequence[Step],
        messages: Sequence[Message],
        attempts: Sequence[Attempt],
        verdict: Verdict,
    ) -> None:
        pods = [each for each in self._pods.values() if each.workload == workload.name]
        kind = "scaler" if workload.queue else "annotation"
        slept = 0.0
        for step in steps:
            wrong = None
            if step.before == 0:
                verdict.woken[kind] += 1
                if workload.queue:
                    wrong = woken_without_work(workload, step, slept, messages)
                else:
                    wrong = woken_by_nobody(workload, step, attempts)
            elif step.after == 0 or self._said_idle(workload, step):
                verdict.released[kind] += 1
                slept = step.at
                if workload.queue:
                    verdict.margins.append(margin(workload, step, messages))
                    wrong = released_at_work(workload, step, messages)
                else:
                    wrong = released_not_idle(workload, step, pods)
            if wrong is not None:
                verdict.violations.append(wrong)

    def _unseen(self, workload: ScaledWorkload, steps: Sequence[Step], works: Sequence[Work]) -> list[float]:
        own = {uid for uid, each in self._pods.items() if each.workload == workload.name}
        return [
            step.at - work.since
            for step in steps
            for work in works
            if not step.after
            and work.uid in own
            and work.since < step.at
            and work.until > step.end - workload.threshold
        ]

    def _said_idle(self, workload: ScaledWorkload, step: Step) -> bool:
        """A step to a minimum above zero is a release if the scaler said so; else it is one of size."""
        return step.after < step.before and any(
            step.at - DECIDED <= seen <= step.end + LAG and wanted == step.after
            for seen, wanted in self._idle.get(workload.name, ())
        )

    def _follow(self, path: str, one: Callable[[Object, bool], None]) -> None:
        def happened(object: Object, deleted: bool) -> None:
            with self._lock:
                self.versions += 1
                try:
                    one(object, deleted)
                except Exception as error:  # a judge that fails must not pass for content
                    self._wrong.append(f"the auditor failed at {object['metadata']['name']}: {error!r}")

        def listed(objects: list[Object]) -> None:
            self.relists += 1
            for each in objects:
                happened(each, False)

        watch(self._api, path, happened, listed, self._stopped)

    def _workload(self, object: Object, deleted: bool) -> None:
        name = object["metadata"]["name"]
        workload = self._workloads.get(name)
        if workload is None or deleted or object["metadata"].get("ownerReferences"):
            return
        replicas = object["spec"]["replicas"]
        wrong = out_of_bounds(workload, replicas)
        if wrong is not None:
            self._wrong.append(wrong)
        before = self._replicas.get(name, replicas)
        self._replicas[name] = replicas
        if before != replicas:
            self.steps.setdefault(name, []).append(Step(before, replicas, scaled_at(object)))

    def _pod(self, object: Object, deleted: bool) -> None:
        meta, status = object["metadata"], object["status"]
        record = self._pods.setdefault(meta["uid"], PodRecord(meta.get("labels", {}).get("app", "")))
        found = {each["type"]: each for each in status.get("conditions", ())}
        idle, scheduled = found.get(IDLE, {}), found.get("PodScheduled", {})
        bound = _seconds(scheduled) if scheduled.get("status") == "True" else None
        if bound is None and object["spec"].get("nodeName"):
            bound = _stamp(meta["creationTimestamp"])  # the scheduler has said last that there was no room
        record.versions.append(
            PodVersion(
                time.time(),
                _seconds(idle) if idle.get("status") == "True" else None,
                bound,
                leaves=deleted or "deletionTimestamp" in meta,
            )
        )

    def _scaler(self, object: Object, deleted: bool) -> None:
        status = object.get("status", {})
        if not deleted and status.get("state") == "Idle":
            said = self._idle.setdefault(object["metadata"]["name"], [])
            said.append((time.time(), status.get("desired", -1)))


def scaled_at(object: Object) -> float:
    """When the replicas that are wanted were last written, by the API server's own note; else now."""
    times = [
        _stamp(each["time"])
        for each in object["metadata"].get("managedFields", ())
        if "time" in each and "f:replicas" in each.get("fieldsV1", {}).get("f:spec", {})
    ]
    return max(times, default=float(int(time.time())))


def _seconds(condition: Object) -> float:
    return _stamp(condition["lastTransitionTime"])


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

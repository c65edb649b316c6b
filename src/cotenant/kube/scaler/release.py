"""Scales idle workloads to zero by their annotation `cotenant.dev/scale-down-threshold`, without a GpuScaler.

Idle means: every replica has had its GPU for the threshold, and none has launched or allocated anything for
as long. How many replicas there were is written on the workload in the same patch that scales it, so no crash
can lose it. `cotenant wake` and `kubectl scale` bring it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.idle import WHEN_OTHERS_WAIT
from cotenant.core.units import format_duration
from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, NotFound
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS, Resource
from cotenant.kube.api.store import Store
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.scaler.demand import Holder
from cotenant.kube.scaler.replicas import ReplicaIndex, Replicas
from cotenant.kube.scaler.workload import Workload
from cotenant.scaling.durations import AUTO, read_threshold

log = get_logger(__name__)

WITHIN = 4.0
"""Seconds for one patch; the lease must hold at least as long when it is sent."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """After how many idle seconds a workload is released, and after how many while others wait."""

    alone: float
    wanted: float


def read_thresholds(annotations: Mapping[str, str]) -> Thresholds | None:
    """Returns None for a workload that does not ask for it; BadInput names the annotation."""
    text = annotations.get(names.SCALE_DOWN_THRESHOLD)
    if text is None:
        return None
    alone = _seconds(text, names.SCALE_DOWN_THRESHOLD)
    shorter = annotations.get(names.SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT)
    if shorter is None:
        return Thresholds(alone, min(alone, WHEN_OTHERS_WAIT))
    wanted = _seconds(shorter, names.SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT)
    if wanted > alone:
        raise BadInput(
            f"annotation {names.SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT}: {shorter} is longer than "
            f"{names.SCALE_DOWN_THRESHOLD}, which is {text}: give a shorter time, or none"
        )
    return Thresholds(alone, wanted)


def _seconds(text: str, annotation: str) -> float:
    seconds = read_threshold(text, f"annotation {annotation}")
    if seconds == AUTO:
        raise BadInput(
            f"annotation {annotation}: {AUTO} needs a queue to learn from: give a duration, such as 15m, or "
            "make a GpuScaler"
        )
    return float(seconds)


@dataclass(frozen=True, slots=True)
class Releasable:
    """A workload that has been idle for at least its shorter threshold."""

    resource: Resource[Workload]
    workload: Workload
    replicas: Replicas
    thresholds: Thresholds
    since: float

    @property
    def name(self) -> str:
        meta = self.workload.metadata
        return f"{self.resource.kind} {meta.namespace}/{meta.name}"

    def holder(self, now: float) -> Holder:
        return Holder(
            self.workload.metadata.uid,
            frozenset(each.uid for each in self.replicas.all),
            self.since,
            goes=now - self.since >= self.thresholds.alone,
        )


@dataclass
class Releasing:
    """Finds workloads to release, and releases them. The part asks the line in between."""

    client: Client
    workloads: Sequence[tuple[Resource[Workload], Store[Workload]]]
    index: ReplicaIndex
    recorder: EventRecorder
    must_lead: Callable[[float], None]
    """Raises unless no other server can lead for this many seconds."""
    scaled_by: Callable[[Resource[Workload], Workload], str | None] = lambda _, __: None
    """Names what else scales a workload."""
    released: Callable[[], object] = lambda: None
    """Called for every workload that was released."""
    _noted: dict[str, str] = field(default_factory=dict, init=False)
    """UID of a workload to what was last said about it."""

    def annotated(self) -> Iterator[tuple[Resource[Workload], Workload]]:
        for resource, store in self.workloads:
            for workload in store:
                if names.SCALE_DOWN_THRESHOLD in workload.metadata.annotations and not workload.is_owned:
                    yield resource, workload

    def releasable(self, now: float) -> list[Releasable]:
        """Returns the workloads that are idle for their shorter threshold, and says what is wrong with
        others.
        """
        found = []
        seen = set[str]()
        for resource, workload in self.annotated():
            seen.add(workload.metadata.uid)
            try:
                thresholds = read_thresholds(workload.metadata.annotations)
            except BadInput as error:
                self._say(resource, workload, "ScaleDownThresholdInvalid", str(error))
                continue
            if thresholds is None or not workload.replicas:
                continue
            other = self.scaled_by(resource, workload)
            if other is not None:
                why = f"annotation {names.SCALE_DOWN_THRESHOLD} has no effect: {other} scales it"
                self._say(resource, workload, "ScaleDownThresholdIgnored", why)
                continue
            one = self._idle(resource, workload, thresholds, now)
            if one is not None:
                found.append(one)
        self._noted = {uid: said for uid, said in self._noted.items() if uid in seen}
        return found

    def _idle(
        self, resource: Resource[Workload], workload: Workload, thresholds: Thresholds, now: float
    ) -> Releasable | None:
        replicas = self.index.replicas(workload.metadata.namespace, workload.selector)
        if len(replicas.all) != workload.replicas:
            return None  # some come or go
        since = replicas.idle_since
        if since is None:
            if replicas.unknown is not None:
                why = f"not released: nobody knows whether it is idle: {replicas.unknown}"
                self._say(resource, workload, "GPUIdleUnknown", why)
            return None
        if now - since < thresholds.wanted:
            return None
        return Releasable(resource, workload, replicas, thresholds, since)

    def due(self, one: Releasable, now: float, wanted_by: Pod | None) -> bool:
        return wanted_by is not None or now - one.since >= one.thresholds.alone

    async def release(self, one: Releasable, now: float, wanted_by: Pod | None) -> bool:
        """Scales it to zero, if it is still what was looked at; reports whether it was. Its replicas are
        looked at again: others were written to meanwhile, and that takes time.
        """
        meta, before = one.workload.metadata, one.workload.replicas
        again = self._idle(one.resource, one.workload, one.thresholds, now)
        if again is None or again.since != one.since:
            return False
        changes = {
            "metadata": {"annotations": {names.RELEASED_REPLICAS: str(before)}},
            "spec": {"replicas": 0},
        }
        if not await self._patch(one.resource, one.workload, changes):
            return False
        idle = format_duration(round(now - one.since))
        log.info(
            "workload released", kind=one.resource.kind, namespace=meta.namespace, name=meta.name, idle=idle
        )
        self.released()
        self._noted.pop(meta.uid, None)
        self._tell(one, idle, before, wanted_by)
        return True

    def _tell(self, one: Releasable, idle: str, before: int, wanted_by: Pod | None) -> None:
        meta = one.workload.metadata
        back = f"`cotenant wake -n {meta.namespace} {one.resource.kind.lower()}/{meta.name}` brings it back"
        for_ = "" if wanted_by is None else f": pod {_name(wanted_by)} waits in line and can then start"
        why = f"idle for {idle}, scaled from {before} to 0{for_}; {back}"
        self.recorder.record(one.workload, "Released", why, one.resource, normal=True, each=True)
        tell_pods(self.recorder, one.name, one.replicas, idle, wanted_by)

    async def bring_back(self) -> None:
        """Takes the note off workloads that were released and have replicas again: what they had before
        counts no longer.
        """
        for resource, store in self.workloads:
            for workload in store:
                if names.RELEASED_REPLICAS in workload.metadata.annotations and workload.replicas:
                    if workload.is_owned:
                        continue  # a copy of its owner's
                    changes = {"metadata": {"annotations": {names.RELEASED_REPLICAS: None}}}
                    await self._patch(resource, workload, changes)

    async def _patch(
        self, resource: Resource[Workload], workload: Workload, changes: Mapping[str, Any]
    ) -> bool:
        meta = workload.metadata
        try:
            self.must_lead(WITHIN)
            await self.client.merge_patch(
                resource,
                meta.name,
                changes,
                meta.namespace,
                guard=Guard.of(workload),
                retry=False,
                within=WITHIN,
            )
        except (NotFound, Conflict):
            return False  # it has changed: what is true now is looked at in the next round
        except CotenantError as error:
            log.warning(
                "workload not patched",
                kind=resource.kind,
                namespace=meta.namespace,
                name=meta.name,
                error=error,
            )
            self._say(resource, workload, "ReleaseFailed", f"it cannot be changed: {error}")
            return False
        return True

    def _say(self, resource: Resource[Workload], workload: Workload, reason: str, why: str) -> None:
        """Records an event if it says something new."""
        uid = workload.metadata.uid
        if self._noted.get(uid) != why:
            self._noted[uid] = why
            self.recorder.record(workload, reason, why, resource, each=True)


def tell_pods(
    recorder: EventRecorder, workload: str, replicas: Replicas, idle: str, wanted_by: Pod | None
) -> None:
    """Records events on released pods and on the pod that they make room for: each names the other."""
    names_ = [_name(each.pod) for each in replicas.all]
    for each in replicas.all:
        for_ = "" if wanted_by is None else f": pod {_name(wanted_by)} waits in line for its room"
        why = f"{workload} was idle for {idle} and is scaled down{for_}"
        recorder.record(each.pod, "ReleasedGPU", why, PODS, normal=True, each=True)
    if wanted_by is not None:
        some = ", ".join(names_[:3]) + (f" and {len(names_) - 3} more" if len(names_) > 3 else "")
        why = f"{workload}, idle for {idle}, gives up its GPUs (pod {some}): placed when they have ended"
        recorder.record(wanted_by, "GPUReleasedForIt", why, PODS, normal=True, each=True)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"

"""Counts the replicas of a workload from the watched pods: ready, starting, waiting for a GPU, idle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from cotenant.dialects import names
from cotenant.kube.api.objects import Condition, Pod
from cotenant.kube.api.store import Change, Store
from cotenant.kube.pods.demand import has_ended
from cotenant.kube.pods.idleness import Idle, Idleness, Unknown, Working, idleness
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.scaler.selector import Selector

_K = TypeVar("_K")
_Label = tuple[str, str, str]
"""Namespace, key and value."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod that counts: it has not ended and is not being deleted. Times are Unix seconds."""

    pod: Pod
    bound: float | None
    """Since when it has its GPU; None: it waits for one."""
    ready: float | None
    """Since when it is Ready; None: it is not."""
    idleness: Idleness
    silent: str | None = None
    """Why the agent of its node does not report any more, if it holds a GPU there."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def is_idle(self) -> bool:
        return self.ready is not None and isinstance(self.idleness, Idle)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one workload, in the order in which they would be removed."""

    all: tuple[Replica, ...] = ()

    @property
    def ready(self) -> tuple[Replica, ...]:
        return tuple(each for each in self.all if each.ready is not None)

    @property
    def starting(self) -> tuple[Replica, ...]:
        return tuple(each for each in self.all if each.ready is None and each.bound is not None)

    @property
    def waiting(self) -> tuple[Replica, ...]:
        return tuple(each for each in self.all if each.bound is None)

    @property
    def idle_since(self) -> float | None:
        """Since when all of them have had a GPU and none has used it; None if one works, or may."""
        since = 0.0
        for each in self.all:
            if not isinstance(each.idleness, Idle) or each.bound is None:
                return None
            since = max(since, each.idleness.since, each.bound)
        return since if self.all else None

    @property
    def unknown(self) -> str | None:
        """Says of which replica nobody knows whether it is idle, and why."""
        for each in self.all:
            if each.bound is not None and isinstance(each.idleness, Unknown):
                return f"pod {each.pod.metadata.name}: {each.idleness.reason}"
        return None

    @property
    def silent(self) -> str | None:
        """Says of which replica nobody knows whether it works: its agent does not report."""
        return next(
            (f"pod {each.pod.metadata.name}: {each.silent}" for each in self.all if each.silent is not None),
            None,
        )

    @property
    def active(self) -> int | None:
        """How many work on their GPU; None if of some it is not known, or none has a GPU."""
        on = self._on_gpus()
        return None if on is None else sum(isinstance(each.idleness, Working) for each in on)

    def used_since(self, since: float, now: float) -> int | None:
        """How many work on their GPU, or did so after `since`: what came and went while nobody looked. A time
        in the future is of a clock that is wrong, and tells nothing.
        """
        on = self._on_gpus()
        if on is None:
            return None
        return sum(not isinstance(each.idleness, Idle) or since < each.idleness.since <= now for each in on)

    def _on_gpus(self) -> tuple[Replica, ...] | None:
        on = tuple(
            each
            for each in self.all
            if each.ready is not None and names.GRANT in each.pod.metadata.annotations
        )
        return None if not on or any(isinstance(each.idleness, Unknown) for each in on) else on


def removal_order(replicas: Iterable[Replica]) -> list[Replica]:
    """Sorts them as they should go: without a GPU, loading (the youngest first), idle (the longest first),
    then those that work, the youngest first.
    """

    def order(each: Replica) -> tuple[int, float, str]:
        if each.bound is None:
            return 0, -created_at(each.pod, 0.0), each.uid
        if each.ready is None:
            return 1, -each.bound, each.uid
        if isinstance(each.idleness, Idle):
            return 2, each.idleness.since, each.uid
        return 3, -each.bound, each.uid

    return sorted(replicas, key=order)


@dataclass
class ReplicaIndex:
    """Finds pods by label, without a look at all pods of a namespace: there may be a thousand workloads."""

    pods: Store[Pod]
    agent_gone: Callable[[str], str | None] = lambda _: None
    """Says why the agent of a node does not report."""
    agent_silent: Callable[[str], str | None] = lambda _: None
    """Says the same of one that did report before."""
    _by_label: dict[_Label, dict[str, Pod]] = field(default_factory=dict, init=False)
    _by_namespace: dict[str, dict[str, Pod]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.pods.subscribe(self._on_pod)

    def replicas(self, namespace: str, selector: Selector) -> Replicas:
        found = (
            self.replica(pod)
            for pod in self._candidates(namespace, selector)
            if selector.matches(pod.metadata.labels)
        )
        return Replicas(tuple(removal_order(found)))

    def replica(self, pod: Pod) -> Replica:
        scheduled, ready = _true(pod, "PodScheduled"), _true(pod, "Ready")
        bound = _seconds(scheduled, pod) if pod.spec.node_name else None
        state: Idleness = Unknown("it is not on a node")
        silent = None
        if bound is not None:
            state = idleness(pod, self.agent_gone(pod.spec.node_name))
            if names.GRANT in pod.metadata.annotations:
                silent = self.agent_silent(pod.spec.node_name)
        return Replica(pod, bound, None if ready is None else _seconds(ready, pod), state, silent)

    def _candidates(self, namespace: str, selector: Selector) -> list[Pod]:
        sets = [self._by_label.get((namespace, *label), {}) for label in selector.equal]
        if not sets:
            sets = [self._by_namespace.get(namespace, {})] if selector.requirements else [{}]
        return list(min(sets, key=len).values())

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.before is not None:
            self._drop(change.before)
        pod = change.object
        if change.kind != "deleted" and pod.metadata.deletion_timestamp is None and not has_ended(pod):
            self._add(pod)

    def _add(self, pod: Pod) -> None:
        meta = pod.metadata
        self._by_namespace.setdefault(meta.namespace, {})[meta.uid] = pod
        for key, value in meta.labels.items():
            self._by_label.setdefault((meta.namespace, key, value), {})[meta.uid] = pod

    def _drop(self, pod: Pod) -> None:
        meta = pod.metadata
        _remove(self._by_namespace, meta.namespace, meta.uid)
        for key, value in meta.labels.items():
            _remove(self._by_label, (meta.namespace, key, value), meta.uid)


def _remove(index: dict[_K, dict[str, Pod]], key: _K, uid: str) -> None:
    there = index.get(key)
    if there is not None:
        there.pop(uid, None)
        if not there:
            del index[key]


def _true(pod: Pod, type: str) -> Condition | None:
    return next((each for each in pod.status.conditions if each.type == type and each.status == "True"), None)


def _seconds(condition: Condition | None, pod: Pod) -> float:
    """When the condition became true; if it does not say, when the pod was created."""
    at: datetime | None = condition.last_transition_time if condition is not None else None
    return created_at(pod, 0.0) if at is None else at.timestamp()

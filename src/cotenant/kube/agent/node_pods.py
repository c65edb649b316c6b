"""Reads the node's pods once for each change of them: their grants, container IDs, requests and workloads.

Several parts need them every few seconds, for hundreds of pods of which seldom one changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.agent.grants import container_ids, grants_of
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.store import Change, Store
from cotenant.kube.pods.requests import requests_of_all
from cotenant.kube.pods.shares import shares_of
from cotenant.kube.pods.workload import workload_of
from cotenant.observe.view import ShareView, WorkloadView


@dataclass(frozen=True, eq=False)
class PodsNow:
    """The node's pods between two changes: as long as it is the same object, no pod has changed. Threads may
    read it.
    """

    pods: tuple[Pod, ...] = ()

    @cached_property
    def by_uid(self) -> Mapping[str, Pod]:
        return {pod.metadata.uid: pod for pod in self.pods}

    @cached_property
    def grants(self) -> Mapping[str, PodGrant]:
        """By pod UID; without those that cannot be read."""
        return grants_of(self.pods)

    @cached_property
    def running(self) -> tuple[tuple[Pod, PodGrant], ...]:
        """Pods with a grant that run, without those that are being deleted."""
        return tuple(
            (pod, self.grants[pod.metadata.uid])
            for pod in self.pods
            if pod.metadata.uid in self.grants
            and pod.status.phase == "Running"
            and pod.metadata.deletion_timestamp is None
        )

    @cached_property
    def ids(self) -> Mapping[tuple[str, str], str]:
        """Container IDs by pod UID and container name."""
        return container_ids(self.pods)

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """What they take of the node, by resource."""
        return requests_of_all(self.pods)

    @cached_property
    def shares(self) -> Mapping[str, tuple[ShareView, ...]]:
        """What they hold by their grants, by GPU."""
        found: dict[str, list[ShareView]] = {}
        for uid, grant in self.grants.items():
            for share in shares_of(self.by_uid[uid], grant):
                found.setdefault(share.uuid, []).append(share)
        return {uuid: tuple(shares) for uuid, shares in found.items()}

    @cached_property
    def workloads(self) -> Mapping[str, WorkloadView]:
        """By pod UID."""
        return {uid: workload_of(pod) for uid, pod in self.by_uid.items()}


class NodePods:
    """Keeps the pods of a store as PodsNow. For the event loop."""

    def __init__(self, store: Store[Pod]) -> None:
        self._store = store
        self._now: PodsNow | None = None
        store.subscribe(self._changed)

    def now(self) -> PodsNow:
        if self._now is None:
            self._now = PodsNow(tuple(self._store))
        return self._now

    def _changed(self, _: Change[Pod]) -> None:
        self._now = None

"""Keeps the cluster's ledger in step with the API server.

Two sources charge it: pods that are seen bound with a grant of their own, and bind operations that are under
way. What is under way stays charged until its outcome is known, whatever is seen of the pod meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.store import Change, Store
from cotenant.kube.binding.counting import counts_as
from cotenant.kube.binding.fencing import NotChanged
from cotenant.kube.logs import get_logger
from cotenant.kube.nodes.gpus import gpus_of_node
from cotenant.kube.pods.demand import grant_of, has_ended
from cotenant.kube.pods.requests import beside_gpus, spare_of_node
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.pod_statistics import PodStatistics

log = get_logger(__name__)

RECOUNT = 30.0
"""Seconds between two checks for charges whose pod is not seen."""


@dataclass
class LedgerFeed:
    """Feeds `cluster` from the two stores, from the moment it is made."""

    pods: Store[Pod]
    nodes: Store[Node]
    cluster: ClusterLedger
    dialects: Dialects = field(default_factory=Dialects)
    under_way: set[str] = field(default_factory=set)
    """UIDs of pods that are being bound."""
    unfenced: dict[str, str] = field(default_factory=dict)
    """UID to the resourceVersion of pods that the API server did not let us change: a Binding that was sent
    earlier can still arrive as long as they have this resourceVersion.
    """
    _unreadable: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.statistics = PodStatistics(self.cluster.learned)
        """Which pods were seen, for the policy."""
        self.nodes.subscribe(self._on_node)
        self.pods.subscribe(self._on_pod)

    def unseen(self) -> dict[str, PodGrant]:
        """Returns the charges of pods that are neither seen with them nor being bound. Ask before a list, and
        give the result to `forget_unseen` after it.
        """
        return {
            uid: grant
            for uid, (_, grant) in self.cluster.pods.items()
            if uid not in self.under_way and not self._is_seen(uid)
        }

    def forget_unseen(self, unseen: Mapping[str, PodGrant]) -> None:
        """Releases charges that a newer list does not show either: bind operations of an earlier term that
        did not happen, and pods that came and went unseen. What was charged meanwhile is not among them.
        """
        for uid, grant in unseen.items():
            charged = self.cluster.charged(uid)
            if uid not in self.under_way and charged is not None and charged[1] is grant:
                self.give_back(uid)

    async def recount(self, relist: Callable[[], Awaitable[None]]) -> None:
        """Checks again and again until it is cancelled: a pod that was bound and deleted while the watch was
        broken is never reported, and would stay charged. After `relist`, the store is not older than the
        call.
        """
        before: dict[str, PodGrant] = {}
        while True:
            await asyncio.sleep(RECOUNT)
            unseen = self.unseen()
            lasting = {uid: grant for uid, grant in unseen.items() if before.get(uid) is grant}
            if lasting:
                log.info("grants charged for pods that are not seen: listing pods again", grants=len(lasting))
                await relist()
                self.forget_unseen(lasting)
            before = unseen

    def give_back(self, uid: str) -> None:
        """Takes back the charge of a bind that did not happen. A pod that is seen bound all the same, by
        anybody, keeps what it has.
        """
        seen = self._seen(uid)
        if seen is None:
            self.cluster.release(uid)
        else:
            self.cluster.load(*seen)

    def grant(self, pod: Pod) -> PodGrant | None:
        """Returns the grant like `grant_of`, but None if it is not valid, and logs that once."""
        try:
            return grant_of(pod)
        except CotenantError as error:
            meta = pod.metadata
            if self._is_news(meta.uid):
                log.warning(
                    "grant cannot be read", namespace=meta.namespace, pod=meta.name, uid=meta.uid, error=error
                )
            return None

    def load(self, pod: Pod) -> bool:
        """Charges what a bound pod holds; False if that is nothing."""
        grant = self.grant(pod)
        if grant is not None:
            self.cluster.load(pod.spec.node_name, grant)
            self.cluster.request(pod.metadata.uid, pod.spec.node_name, beside_gpus(pod))
        return grant is not None

    def fenced(self, uid: str, refused: NotChanged | None) -> None:
        """Notes whether an earlier Binding of the pod is ruled out for certain."""
        self.unfenced.pop(uid, None)
        if refused is not None:
            meta = refused.pod.metadata
            self.unfenced[uid] = meta.resource_version
            log.error(
                "pod cannot be changed: it is not bound until it can be",
                namespace=meta.namespace,
                pod=meta.name,
                uid=uid,
                error=refused,
            )

    def is_unfenced(self, pod: Pod) -> bool:
        return self.unfenced.get(pod.metadata.uid) == pod.metadata.resource_version

    def _is_seen(self, uid: str) -> bool:
        """Reports the same as `_seen` without reading the grant: there may be thousands, and each was read
        when it came.
        """
        pod = self.pods.get(uid)
        return (
            pod is not None
            and bool(pod.spec.node_name)
            and names.GRANT in pod.metadata.annotations
            and not has_ended(pod)
        )

    def _seen(self, uid: str) -> tuple[str, PodGrant] | None:
        """Returns the node and the grant of a pod that is seen bound."""
        pod = self.pods.get(uid)
        grant = None if pod is None else self.grant(pod)
        return None if pod is None or grant is None else (pod.spec.node_name, grant)

    def _on_node(self, change: Change[Node]) -> None:
        name = change.object.metadata.name
        if change.kind == "deleted":
            self.cluster.drop_node(name)
            self._unreadable.discard(name)
            return
        try:
            gpus, outside = gpus_of_node(change.object)
        except CotenantError as error:
            if self._is_news(name):
                log.warning("GPUs of the node cannot be read", node=name, error=error)
            gpus, outside = (), {}
        else:
            self._unreadable.discard(name)
        self.cluster.set_node(name, gpus, outside, spare_of_node(change.object))

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.object
        uid = pod.metadata.uid
        if change.kind == "deleted" or has_ended(pod):
            self.cluster.release(uid)
            self.statistics.end(uid)
            self._unreadable.discard(uid)
            self.unfenced.pop(uid, None)
        elif pod.spec.node_name:
            if not self._is_known(change):
                grant = self.grant(pod)
                if grant is not None:
                    self.cluster.load(pod.spec.node_name, grant)
                elif uid not in self.under_way and self.cluster.charged(uid) is not None:
                    self.cluster.release(uid)
            self._count(pod)

    def _count(self, pod: Pod) -> None:
        """Counts what a pod takes of its node beside GPUs, and the pod itself when it is seen first."""
        uid = pod.metadata.uid
        self.cluster.request(uid, pod.spec.node_name, beside_gpus(pod))
        if not self.statistics.knows(uid):
            self.statistics.start(uid, counts_as(pod, self.cluster, self.dialects))

    def _is_known(self, change: Change[Pod]) -> bool:
        """Reports whether it is charged already and only something else has changed, as in most changes of a
        running pod.
        """
        before, now = change.before, change.object
        return (
            before is not None
            and before.spec.node_name == now.spec.node_name
            and before.metadata.annotations.get(names.GRANT) == now.metadata.annotations.get(names.GRANT)
            and self.cluster.charged(now.metadata.uid) is not None
        )

    def _is_news(self, key: str) -> bool:
        """Reports whether the log does not say yet that this pod (UID) or node (name) cannot be read."""
        if key in self._unreadable:
            return False
        self._unreadable.add(key)
        return True

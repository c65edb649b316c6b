"""Finds whose release would let a waiting pod start, by the cluster's ledger.

A GPU that nobody wants costs nothing to hold. So what others hold idle counts only if a pod in line could
start with it: on one node, on GPUs that fit, together with what is free there and what ends anyway. Where one
release is not enough, several count together, or none does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cotenant.kube.api.objects import Pod
from cotenant.kube.api.store import Store
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import rows_of
from cotenant.kube.scheduling.opening import Opening, opening_on
from cotenant.kube.scheduling.scan import has_room
from cotenant.kube.scheduling.victims import Candidate, Tries
from cotenant.kube.scheduling.waiting import WaitingPod

_MOST_WAITING = 64
"""Pods in line, from its head, that are asked for in one round."""
_MOST_NODES = 64
"""Nodes on which room is searched for one of them."""


class InLine(Protocol):
    """One pod in line."""

    @property
    def pod(self) -> Pod: ...

    @property
    def waiting(self) -> WaitingPod: ...

    @property
    def stays_away(self) -> bool:
        """Whether something besides GPUs keeps it."""


@runtime_checkable
class WaitingLine(Protocol):
    """The line, as far as a scaler reads it."""

    def places(self) -> Sequence[InLine]:
        """Lists the pods in line, the head first."""

    def place_of(self, uid: str) -> int | None:
        """Returns the place of a pod, 1 for the head; None if it is not in line."""

    def behind(self, pod: Pod) -> frozenset[str]:
        """Returns the pods after it for which GPUs are held."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that is idle and could be released."""

    key: str
    """The UID of the workload."""
    pods: frozenset[str]
    """UIDs of its replicas."""
    since: float
    """Unix time of its last activity: who has been idle for longest goes first."""
    goes: bool = False
    """It is released anyway: its room counts, and is in nobody's favour."""


@dataclass
class Demand:
    cluster: ClusterLedger
    line: WaitingLine
    pods: Store[Pod]

    def wanted(self, holders: Sequence[Holder]) -> dict[str, Pod]:
        """Returns, by the key of each holder whose release is wanted, the waiting pod that could then start.

        The head of the line is asked for first; what is released for it is not counted for another.
        """
        by_pod = {uid: each for each in holders for uid in each.pods}
        found: dict[str, Pod] = {}
        if not any(not each.goes for each in holders):
            return found
        leaving = {uid for uid in self.cluster.pods if self._leaves(uid)}
        leaving |= {uid for uid, each in by_pod.items() if each.goes}
        tries = Tries()
        for place in self.line.places()[:_MOST_WAITING]:
            if place.stays_away or self.cluster.charged(place.waiting.uid) is not None:
                continue
            opening = self._opening(place, by_pod, leaving, tries)
            for uid in opening.victims if opening is not None else ():
                holder = by_pod[uid]
                found.setdefault(holder.key, place.pod)
                leaving |= holder.pods
        return found

    def _leaves(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return pod is not None and pod.metadata.deletion_timestamp is not None

    def _opening(
        self, place: InLine, by_pod: Mapping[str, Holder], leaving: Collection[str], tries: Tries
    ) -> Opening | None:
        waiting, behind = place.waiting, self.line.behind(place.pod)
        rows = rows_of(self.cluster, waiting.eligible)
        if has_room(self.cluster, waiting.demands, rows, (waiting.uid, *behind)):
            return None
        eligible = {self.cluster.name(row) for row in rows.tolist()}
        by_node: dict[str, list[Candidate]] = {}
        for uid, holder in by_pod.items():
            charged = self.cluster.charged(uid)
            if charged is not None and charged[0] in eligible and uid not in leaving:
                by_node.setdefault(charged[0], []).append(Candidate(uid, 0, -holder.since))
        found = []
        for node in sorted(by_node)[:_MOST_NODES]:
            there = [uid for uid in self.cluster.pods_on(node) if uid in leaving]
            opening = opening_on(
                self.cluster, node, waiting.uid, waiting.demands, by_node[node], there, behind, tries
            )
            if opening is not None:
                if not opening.victims:
                    return None  # those that leave anyway are enough
                found.append(opening)
        return min(found, key=lambda each: each.cost, default=None)

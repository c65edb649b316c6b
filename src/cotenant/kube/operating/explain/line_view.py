"""The cluster's line as the API shows it: who waits, in which order, and what is held for whom.

The line itself is in the memory of the server that leads. It is made of the same pods by the same rules, so
what comes out here is the same but for moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.nodes.gpus import GpusUnreadable, gpus_of_node
from cotenant.kube.operating.status.census import readable_grant
from cotenant.kube.pods.demand import demand_of, has_ended
from cotenant.kube.pods.eligibility import ANYWHERE, Placement, obstacle
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import only
from cotenant.kube.scheduling.waiting import Served, Waiting, order, serve
from cotenant.kube.settings import Settings


@dataclass(frozen=True)
class LineView:
    cluster: ClusterLedger
    """With the cards held that the line holds."""
    line: tuple[Waiting, ...]
    """The head first."""
    served: Served
    pods: dict[str, Pod]
    """Those in the line, by UID."""

    def place(self, uid: str) -> int:
        """1 is the head."""
        return next(at for at, waiting in enumerate(self.line, start=1) if waiting.uid == uid)

    def name(self, uid: str) -> str:
        meta = self.pods[uid].metadata
        return f"{meta.namespace}/{meta.name}"

    def holder_of(self, node: str, card: str) -> str | None:
        """For whom the card is held: UID."""
        return next(
            (uid for uid, (where, cards) in self.served.holds.items() if where == node and card in cards),
            None,
        )


def ledger_of_cluster(nodes: Iterable[Node], pods: Iterable[Pod]) -> ClusterLedger:
    """The ledger as a server would make it at its start."""
    cluster = ClusterLedger()
    for node in nodes:
        try:
            gpus, outside = gpus_of_node(node)
        except GpusUnreadable:
            continue
        cluster.set_node(node.metadata.name, gpus, outside)
    for pod in pods:
        grant = readable_grant(pod)
        if grant is not None:
            cluster.load(pod.spec.node_name, grant)
    return cluster


def view_line(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    settings: Settings,
    now: float,
    asked: Pod | None = None,
    placement: Placement = ANYWHERE,
) -> LineView:
    """`asked` is in it even if no scheduler has refused it yet, and goes where its `placement` allows. Of the
    others only this is known: nobody goes to a node that is cordoned or not Ready.
    """
    cluster = ledger_of_cluster(nodes, pods)
    own = asked.metadata.uid if asked is not None else None
    there = {pod.metadata.uid: pod for pod in pods if is_unschedulable(pod) or pod.metadata.uid == own}
    usable = [node.metadata.name for node in nodes if not _is_closed(node)]
    wished = [node.metadata.name for node in nodes if obstacle(placement, node) is None]
    anybody, chosen = only(cluster, cluster.rows(usable)), only(cluster, cluster.rows(wished))
    waiting = [
        Waiting(
            uid,
            demands,
            pod.spec.priority,
            since=_refused_at(pod, _created(pod, now)),
            eligible=chosen if uid == own else anybody,
            created=_created(pod, now),
        )
        for uid, pod in there.items()
        if waits(pod) and (demands := demands_of(pod, settings.dialects))
    ]
    served = serve(cluster, waiting, now, settings.line.patience)
    for uid, (node, cards) in served.holds.items():
        cluster.hold(uid, node, cards)
    return LineView(cluster, tuple(order(waiting)), served, there)


def _is_closed(node: Node) -> bool:
    found = obstacle(ANYWHERE, node)
    return found is not None and found.kind in {"not-ready", "cordoned"}


def _created(pod: Pod, now: float) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else now


def _refused_at(pod: Pod, made: float) -> float:
    """From then on its patience counts; a server that took over later counts from when it did."""
    at = (each.last_transition_time for each in pod.status.conditions if each.type == "PodScheduled")
    return max((moment.timestamp() for moment in at if moment is not None), default=made)


def demands_of(pod: Pod, dialects: Dialects) -> tuple[Demand, ...]:
    """None if it asks for no GPU, or for something that makes no sense."""
    try:
        return tuple(slot.demand for slot in demand_of(pod, dialects).slots)
    except BadInput:
        return ()


def waits(pod: Pod) -> bool:
    """Whether it could be bound at all."""
    return not (
        pod.spec.node_name
        or has_ended(pod)
        or pod.metadata.deletion_timestamp is not None
        or pod.spec.scheduling_gates
    )


def is_unschedulable(pod: Pod) -> bool:
    """A scheduler has tried it, in vain."""
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in pod.status.conditions
    )

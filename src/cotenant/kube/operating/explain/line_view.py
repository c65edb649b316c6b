"""Rebuilds the cluster's line from the API: which pods wait, in which order, and which cards are held.

The line itself is in the memory of the server that leads. Both are made of the same pods by the same rule
(`kube.line.membership`), so they are the same list but for moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.line.membership import is_in_line, waited, waiting
from cotenant.kube.nodes.gpus import GpusUnreadable, gpus_of_node
from cotenant.kube.nodes.opening_mark import opened_for
from cotenant.kube.pods.demand import demand_of, has_ended, readable_grant
from cotenant.kube.pods.eligibility import ANYWHERE, Placement, obstacle
from cotenant.kube.pods.requests import beside_gpus, spare_of_node
from cotenant.kube.pods.unschedulable import may_be_bound, was_tried
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import Eligible, only
from cotenant.kube.scheduling.waiting import ServedLine, WaitingPod, order, serve
from cotenant.kube.settings import Settings


@dataclass(frozen=True)
class LineView:
    cluster: ClusterLedger
    """The ledger, with the GPUs held that the line holds."""
    line: tuple[WaitingPod, ...]
    """The head first."""
    served: ServedLine
    pods: dict[str, Pod]
    """Those in the line, by UID."""

    def place(self, uid: str) -> int | None:
        """Returns its place, 1 for the head; None if it is not in line."""
        return next((at for at, each in enumerate(self.line, start=1) if each.uid == uid), None)

    def name(self, uid: str) -> str:
        meta = self.pods[uid].metadata
        return f"{meta.namespace}/{meta.name}"

    def holder_of(self, node: str, card: str) -> str | None:
        """Returns the UID of the pod for which the card is held."""
        return next(
            (uid for uid, (where, cards) in self.served.holds.items() if where == node and card in cards),
            None,
        )


def ledger_of_cluster(nodes: Iterable[Node], pods: Iterable[Pod]) -> ClusterLedger:
    """Builds the ledger as a server does at its start."""
    cluster = ClusterLedger()
    for node in nodes:
        try:
            gpus, outside = gpus_of_node(node)
        except GpusUnreadable:
            continue
        cluster.set_node(node.metadata.name, gpus, outside, spare_of_node(node))
    for pod in pods:
        grant = readable_grant(pod)
        if grant is not None:
            cluster.load(pod.spec.node_name, grant)
        if pod.spec.node_name and not has_ended(pod):
            cluster.request(pod.metadata.uid, pod.spec.node_name, beside_gpus(pod))
    return cluster


def view_line(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    settings: Settings,
    now: float,
    placements: Mapping[str, Placement],
    asked: Pod | None = None,
) -> LineView:
    """Builds the line that a server with these nodes and pods would serve.

    Each pod goes where its own placement allows, by UID in `placements`. `asked` is counted in before a
    scheduler has tried it.
    """
    cluster = ledger_of_cluster(nodes, pods)
    own = asked.metadata.uid if asked is not None else None
    eligible = EligibleByPlacement(cluster, nodes)
    there, line, opened = dict[str, Pod](), list[WaitingPod](), opened_for(nodes, now)
    for pod in pods:
        uid = pod.metadata.uid
        untried = uid == own and may_be_bound(pod) and not was_tried(pod)
        if not (untried or is_in_line(pod, settings.dialects)):
            continue
        demands = demands_of(pod, settings.dialects)
        if demands:
            there[uid] = pod
            since = now if uid in opened else now - waited(pod, now)
            line.append(waiting(pod, demands, since, eligible.of(placements.get(uid, ANYWHERE)), now))
    served = serve(cluster, line, now, settings.line.patience)
    for uid, (node, cards) in served.holds.items():
        cluster.hold(uid, node, cards)
    return LineView(cluster, tuple(order(line)), served, there)


class EligibleByPlacement:
    """Finds the nodes on which a placement allows a pod, once for pods that are alike."""

    def __init__(self, cluster: ClusterLedger, nodes: Sequence[Node]) -> None:
        self._cluster, self._nodes = cluster, nodes
        self._known: dict[bytes, Eligible] = {}

    def of(self, placement: Placement) -> Eligible:
        key = msgspec.json.encode(placement)
        if key not in self._known:
            allowed = [each.metadata.name for each in self._nodes if obstacle(placement, each) is None]
            self._known[key] = only(self._cluster, self._cluster.rows(allowed))
        return self._known[key]


def demands_of(pod: Pod, dialects: Dialects) -> tuple[Demand, ...]:
    """Returns the pod's demands; empty if it asks for no GPU, or its demand is not valid."""
    try:
        return demand_of(pod, dialects).demands
    except BadInput:
        return ()

"""Checks how much free GPU memory pods without GPU strand, by taking the CPU and memory of its nodes.

What a byte of GPU memory needs of CPU and memory is what the policy has learned from pods with GPU. Pods that
belong to their node (DaemonSets, static pods) do not count: they run there whatever is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from cotenant.core.finding import WARNING, Finding, Kind
from cotenant.core.loss import Beside, Requests, Spare
from cotenant.core.units import format_bytes
from cotenant.kube.api.objects import Pod
from cotenant.kube.binding.counting import running
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import few
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.operating.explain.line_view import ledger_of_cluster
from cotenant.kube.pods.demand import has_ended
from cotenant.kube.pods.requests import beside_gpus, spare_of_node
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.placing import rooms_of
from cotenant.kube.scheduling.pod_statistics import EndedPods, PodStatistics

STRANDED = Kind("stranded", WARNING, "GPU pods wait although GPUs have room for them")
TARGET = "pods without GPU"
_OF_THE_NODE = ("DaemonSet", "Node")


@dataclass
class _Pods:
    """What the pods of a node take beside GPUs."""

    without_gpu: list[Requests] = field(default_factory=list)
    others: list[Requests] = field(default_factory=list)
    """Those with GPU, and those that belong to the node."""


@dataclass(frozen=True)
class _Node:
    name: str
    stranded: int
    """Bytes that could be used if its pods without GPU were elsewhere."""
    cards: float
    """The same as a number of its cards."""
    pods: int


def stranded(facts: Facts) -> Iterator[Finding]:
    if facts.is_unread("pods") or facts.is_unread("nodes"):
        return
    cluster = ledger_of_cluster(facts.nodes, facts.pods)
    PodStatistics(cluster.learned).begin(
        facts.ended_pods or EndedPods(), running(facts.pods, cluster, facts.installed.settings.dialects)
    )
    found = sorted(_nodes(cluster, facts), key=lambda each: (-each.stranded, each.name))
    cards = sum(each.cards for each in found)
    if cards < 1:
        return
    worst = few([f"{each.name} ({format_bytes(each.stranded)})" for each in found])
    size, pods = format_bytes(sum(each.stranded for each in found)), sum(each.pods for each in found)
    yield STRANDED.at(
        TARGET,
        f"{size} of free GPU memory, as much as {cards:.1f} GPUs have, is of no use: {pods} pods without GPU "
        f"take the CPU, memory or places for pods beside it, on {worst}",
        "keep them off nodes with GPUs by settings.extender.pods_without_gpu: true in the chart's values and "
        "schedulerName: cotenant in these pods, or by a taint (docs/placing.md); they are listed by "
        f"kubectl get pods -A --field-selector spec.nodeName={found[0].name}",
    )


def _nodes(cluster: ClusterLedger, facts: Facts) -> Iterator[_Node]:
    beside, on = cluster.learned.loss.beside, _pods(cluster, facts.pods)
    for node in facts.nodes:
        name = node.metadata.name
        rooms = [room for room in rooms_of(cluster, name) if room.gpu.healthy]
        free, plain = sum(room.free for room in rooms), on[name].without_gpu
        if not free or not plain:
            continue
        has, others = spare_of_node(node), on[name].others
        now = usable(free, _less(has, [*others, *plain]), beside)
        lost = usable(free, _less(has, others), beside) - now
        if lost > 0:
            size = sum(room.gpu.memory for room in rooms) / len(rooms)
            yield _Node(name, lost, lost / size, len(plain))


def usable(free: int, left: Spare, beside: Beside) -> int:
    """Returns how much of the free GPU memory of a node can be used with what it has left beside it."""
    if left.pods < 1:
        return 0
    limits = [free]
    if beside.cpu:
        limits.append(int(left.cpu / beside.cpu))
    if beside.memory:
        limits.append(int(left.memory / beside.memory))
    return min(limits)


def _pods(cluster: ClusterLedger, pods: tuple[Pod, ...]) -> dict[str, _Pods]:
    """Returns what the pods of nodes with GPUs take beside these, by node."""
    found: dict[str, _Pods] = defaultdict(_Pods)
    for pod in pods:
        node, owners = pod.spec.node_name, pod.metadata.owner_references
        if not cluster.gpus(node) or has_ended(pod):
            continue
        stays = any(each.controller and each.kind in _OF_THE_NODE for each in owners)
        others = stays or cluster.charged(pod.metadata.uid) is not None
        (found[node].others if others else found[node].without_gpu).append(beside_gpus(pod))
    return found


def _less(has: Spare, taken: list[Requests]) -> Spare:
    return Spare(
        max(0, has.cpu - sum(each.cpu for each in taken)),
        max(0, has.memory - sum(each.memory for each in taken)),
        max(0, has.pods - len(taken)),
    )


SUBJECT = ClusterSubject(checks=(stranded,))

"""Finds as what a running pod counts for the policy `frag`: what the pods that come are likely to ask for."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.core.errors import BadInput
from cotenant.core.seen_pods import PodKind, pod_kinds
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.demand import demand_of, has_ended
from cotenant.kube.pods.requests import beside_gpus
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger


def counts_as(pod: Pod, cluster: ClusterLedger, dialects: Dialects) -> tuple[PodKind, ...]:
    """Returns nothing for a pod that does not count: one without GPU on a node without GPUs, one that waits
    or has ended, one whose demand is not valid.
    """
    charged = cluster.charged(pod.metadata.uid) is not None
    if has_ended(pod) or not (charged or cluster.gpus(pod.spec.node_name)):
        return ()
    beside = beside_gpus(pod)
    try:
        demands = demand_of(pod, dialects).demands if charged else ()
    except BadInput:
        return ()
    return pod_kinds(demands, beside.cpu, beside.memory)


def running(
    pods: Iterable[Pod], cluster: ClusterLedger, dialects: Dialects
) -> dict[str, tuple[PodKind, ...]]:
    """Returns by UID as what the pods that run count."""
    found = ((pod.metadata.uid, counts_as(pod, cluster, dialects)) for pod in pods)
    return {uid: kinds for uid, kinds in found if kinds}

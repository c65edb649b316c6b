"""Decides which pods are in line, in which order, since when, and on which nodes they may be placed.

The server that leads and `kubectl cotenant explain` both call this, so that what people read is the line that
is served. Three things only the server can know, and `explain` does without them:

- a pod that our extender has just refused is in the server's line a moment before kube-scheduler has written
  so into the pod's status;
- once kube-scheduler has asked about a pod, the server knows exactly which nodes it may go to. Before that
  and after a change of leader, what counts is which nodes take pods at all. `explain` looks at the pod's node
  selector, node affinity and tolerations;
- a pod that was refused by our extender waits since then. For one that waited for CPU or behind a scheduling
  gate before, its status shows an earlier moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.core.demand import Demand
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.pods.eligibility import takes_pods
from cotenant.kube.pods.requests import beside_gpus
from cotenant.kube.pods.unschedulable import (
    created_at,
    lists_reasons,
    may_be_bound,
    tried_since,
    unschedulable_message,
    was_tried,
)
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import Eligible, only
from cotenant.kube.scheduling.reasons import names_our_reason
from cotenant.kube.scheduling.waiting import WaitingPod


def is_in_line(pod: Pod, dialects: Dialects) -> bool:
    """Reports whether the pod waits for room on GPUs, by what the API server shows of it. That it has a
    demand at all is for the caller to check.
    """
    return may_be_bound(pod) and was_tried(pod) and not is_kept_by_others(pod, dialects)


def is_kept_by_others(pod: Pod, dialects: Dialects) -> bool:
    """Reports whether kube-scheduler gives its reasons node by node, and GPUs are none of them: CPU, a node
    selector, a volume. Room on GPUs is not what such a pod waits for, so no card is held for it.
    """
    message = unschedulable_message(pod)
    return lists_reasons(message) and not (
        names_our_reason(message) or any(resource in message for resource in dialects.resources)
    )


def waited(pod: Pod, now: float) -> float:
    """Returns for how many seconds the pod has been in line, by its status. `now` is Unix time."""
    since = tried_since(pod)
    return max(0.0, now - (created_at(pod, now) if since is None else since))


def waiting(
    pod: Pod, demands: tuple[Demand, ...], since: float, eligible: Eligible, now: float
) -> WaitingPod:
    """Returns the pod as a member of the line. `since` is on the clock of the caller, `now` is Unix time."""
    created, beside = created_at(pod, now), beside_gpus(pod)
    return WaitingPod(pod.metadata.uid, demands, pod.spec.priority, since, eligible, created, beside)


def rows_that_take_pods(cluster: ClusterLedger, nodes: Iterable[Node]) -> Eligible:
    """Returns where a pod may go as far as we know before kube-scheduler has asked about it: to every node
    that is Ready and not cordoned.
    """
    return only(cluster, cluster.rows([node.metadata.name for node in nodes if takes_pods(node)]))

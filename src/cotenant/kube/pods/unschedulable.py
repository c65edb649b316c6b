"""Reads whether a pod can still be bound, and why its scheduler has found no node for it."""

from __future__ import annotations

import re

from cotenant.kube.api.objects import Condition, Pod
from cotenant.kube.pods.demand import has_ended

_UNSCHEDULABLE, _ERROR = "Unschedulable", "SchedulerError"
"""Reasons of the condition `PodScheduled`."""
_BY_NODE = re.compile(r"0/\d+ nodes are available: ")
"""How kube-scheduler begins a message that gives its reasons node by node. Other schedulers write what they
like."""


def may_be_bound(pod: Pod) -> bool:
    """Reports whether a scheduler may bind the pod: it is not bound, ended, being deleted or gated."""
    return not (
        pod.spec.node_name
        or has_ended(pod)
        or pod.metadata.deletion_timestamp is not None
        or pod.spec.scheduling_gates
    )


def is_unschedulable(pod: Pod) -> bool:
    """Reports whether a scheduler has tried the pod and found no node. A gated pod has not been tried."""
    return _condition(pod, _UNSCHEDULABLE) is not None


def was_tried(pod: Pod) -> bool:
    """Reports whether a scheduler has tried the pod and not bound it: it found no node, or an error stopped
    it (no server of ours led, or the room was gone at bind).
    """
    return _condition(pod, _UNSCHEDULABLE, _ERROR) is not None


def unschedulable_message(pod: Pod) -> str:
    """Returns the scheduler's own words; empty if it has not found the pod unschedulable."""
    verdict = _condition(pod, _UNSCHEDULABLE)
    return "" if verdict is None else verdict.message


def tried_since(pod: Pod) -> float | None:
    """Returns the Unix time at which the pod was first tried and not bound; None if that is not known."""
    tried = _condition(pod, _UNSCHEDULABLE, _ERROR)
    at = tried.last_transition_time if tried is not None else None
    return at.timestamp() if at is not None else None


def created_at(pod: Pod, default: float) -> float:
    """Returns the Unix time at which the pod was created; `default` for one that no API server has stored."""
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else default


def lists_reasons(message: str) -> bool:
    """Reports whether the message gives kube-scheduler's reasons for all nodes, so that none is missing."""
    return _BY_NODE.match(message) is not None


def _condition(pod: Pod, *reasons: str) -> Condition | None:
    for each in pod.status.conditions:
        if each.type == "PodScheduled" and each.status == "False" and each.reason in reasons:
            return each
    return None

"""Reads what a pod demands, what it was granted, and whether it still holds its grant.

A bound pod with a grant of its own is charged until its containers have terminated. A deletion that was only
requested ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cotenant.dialects import names
from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant, read_grant
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Container, Pod
from cotenant.kube.pods.containers import all_containers, in_start_order, pod_container
from cotenant.kube.pods.slots import PodDemand, slots_of_pod

MIRROR = "kubernetes.io/config.mirror"


_Amounts = tuple[tuple[str, str], ...]
_Spec = tuple[str, str, _Amounts, _Amounts]
"""A container's name, restart policy, limits and requests: hashable, so that demands can be remembered."""

_MOST = 16
_LARGEST = 4096
"""The demand of a pod with more containers or annotations, or more characters in them, is not remembered: its
author must not be able to fill the server's memory.
"""


def demand_of(pod: Pod, dialects: Dialects) -> PodDemand:
    """Returns what the pod asks for. BadInput as at admission, which it may have passed under other settings.

    It is called several times for every pod, and most pods are alike: results are remembered.
    """
    spec, annotations = pod.spec, pod.metadata.annotations
    if annotations:  # what the server itself writes at bind asks for nothing, and differs from pod to pod
        annotations = {key: text for key, text in annotations.items() if not names.only_server_writes(key)}
    containers, inits = tuple(map(_spec, spec.containers or ())), tuple(map(_spec, spec.init_containers))
    small = (
        len(containers) + len(inits) <= _MOST
        and len(annotations) <= _MOST
        and _characters(containers) + _characters(inits) + _length(annotations.items()) <= _LARGEST
    )
    return (_remembered if small else _worked_out)(containers, inits, tuple(annotations.items()), dialects)


def _characters(specs: tuple[_Spec, ...]) -> int:
    return sum(
        len(name) + len(policy) + _length(limits) + _length(requests)
        for name, policy, limits, requests in specs
    )


def _length(texts: Iterable[tuple[str, str]]) -> int:
    return sum(len(key) + len(text) for key, text in texts)


def _spec(container: Container) -> _Spec:
    resources = container.resources
    return (
        container.name,
        container.restart_policy,
        tuple(resources.limits.items()),
        tuple(resources.requests.items()),
    )


def _worked_out(
    containers: tuple[_Spec, ...],
    inits: tuple[_Spec, ...],
    annotations: tuple[tuple[str, str], ...],
    dialects: Dialects,
) -> PodDemand:
    read = tuple(
        pod_container(name, position, policy, dict(limits), dict(requests), is_init=is_init)
        for (name, policy, limits, requests), position, is_init in in_start_order(inits, containers)
    )
    return slots_of_pod(read, dict(annotations), dialects)


_remembered = lru_cache(maxsize=512)(_worked_out)


def grant_of(pod: Pod) -> PodGrant | None:
    """Returns what it holds on its node's GPUs or None; GrantUnreadable if its grant is not valid."""
    text = pod.metadata.annotations.get(names.GRANT)
    if text is None or not pod.spec.node_name or is_mirror(pod) or has_ended(pod):
        return None
    return read_grant(text, pod.metadata.uid)


def readable_grant(pod: Pod) -> PodGrant | None:
    """Returns what it holds on its node's GPUs; None also if its grant is not valid."""
    try:
        return grant_of(pod)
    except GrantUnreadable:
        return None


def has_ended(pod: Pod) -> bool:
    """Reports whether none of its containers runs or ever will."""
    return pod.status.phase in {"Succeeded", "Failed"}


def holds_slot(pod: Pod) -> bool:
    """Reports whether it was admitted by our webhook as a pod that asks for GPU."""
    return any(names.GPU_SLOT in each.resources.limits for each in all_containers(pod))


def is_mirror(pod: Pod) -> bool:
    """Reports whether it is a mirror of a file on the node: no scheduler and no webhook ever saw it."""
    return MIRROR in pod.metadata.annotations

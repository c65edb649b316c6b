"""A pod as the ledger sees it: what it asks for, what it was granted, whether it still holds that.

Charged is a bound pod with a grant of its own, until its containers have ended; that somebody has asked for
its deletion ends nothing.
"""

from __future__ import annotations

from functools import lru_cache

from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, read_grant
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Container, Pod
from cotenant.kube.pods.slots import PodContainer, PodDemand, slots_of_pod

MIRROR = "kubernetes.io/config.mirror"


_Amounts = tuple[tuple[str, str], ...]
_Asking = tuple[str, str, _Amounts, _Amounts]
"""Of a container: its name, its restart policy, its limits and requests."""

_MOST = 16
_LONGEST = 512
"""Of a pod with more containers or annotations, or with longer ones, the demand is not remembered."""


def demand_of(pod: Pod, dialects: Dialects) -> PodDemand:
    """What the pod asks for; BadInput as at admission, which the pod may have passed under other settings.

    It is asked several times for every pod, and most pods are alike: what was worked out is remembered.
    """
    spec, annotations = pod.spec, pod.metadata.annotations
    containers, inits = spec.containers or (), spec.init_containers
    small = (
        len(containers) + len(inits) <= _MOST
        and len(annotations) <= _MOST
        and all(len(text) <= _LONGEST for text in annotations.values())
    )
    return (_remembered if small else _worked_out)(
        tuple(map(_asking, containers)), tuple(map(_asking, inits)), tuple(annotations.items()), dialects
    )


def _asking(container: Container) -> _Asking:
    resources = container.resources
    return (
        container.name,
        container.restart_policy,
        tuple(resources.limits.items()),
        tuple(resources.requests.items()),
    )


def _worked_out(
    containers: tuple[_Asking, ...],
    inits: tuple[_Asking, ...],
    annotations: tuple[tuple[str, str], ...],
    dialects: Dialects,
) -> PodDemand:
    """In the order in which the kubelet starts them."""
    started = (*enumerate(inits, len(containers)), *enumerate(containers))
    return slots_of_pod(
        tuple(
            PodContainer(
                name,
                position,
                at < len(inits) and policy != "Always",
                {"limits": dict(limits), "requests": dict(requests)},
            )
            for at, (position, (name, policy, limits, requests)) in enumerate(started)
        ),
        dict(annotations),
        dialects,
    )


_remembered = lru_cache(maxsize=512)(_worked_out)


def grant_of(pod: Pod) -> PodGrant | None:
    """What it holds on its node's cards; None if nothing. GrantUnreadable if its grant is none."""
    text = pod.metadata.annotations.get(names.GRANT)
    if text is None or not pod.spec.node_name or is_mirror(pod) or has_ended(pod):
        return None
    return read_grant(text, pod.metadata.uid)


def has_ended(pod: Pod) -> bool:
    """Whether no container of it runs, nor ever will."""
    return pod.status.phase in {"Succeeded", "Failed"}


def holds_slot(pod: Pod) -> bool:
    """Whether it has been admitted as a pod that asks for GPU."""
    containers = (*(pod.spec.containers or ()), *pod.spec.init_containers)
    return any(names.GPU_SLOT in container.resources.limits for container in containers)


def is_mirror(pod: Pod) -> bool:
    """A file on the node, shown by its kubelet: no scheduler and no webhook ever saw it."""
    return MIRROR in pod.metadata.annotations

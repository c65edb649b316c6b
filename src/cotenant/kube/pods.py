"""A pod as the ledger sees it: what it asks for, what it was granted, whether it still holds that.

Charged is a bound pod with a grant of its own, until its containers have ended; that somebody has asked for
its deletion ends nothing.
"""

from __future__ import annotations

from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, read_grant
from cotenant.dialects.registry import Dialects
from cotenant.kube.objects import Container, Pod
from cotenant.kube.slots_of_pod import PodContainer, PodDemand, slots_of_pod

MIRROR = "kubernetes.io/config.mirror"


def demand_of(pod: Pod, dialects: Dialects) -> PodDemand:
    """What the pod asks for; BadInput as at admission, which the pod may have passed under other settings."""
    return slots_of_pod(_containers(pod), pod.metadata.annotations, dialects)


def _containers(pod: Pod) -> tuple[PodContainer, ...]:
    """In the order in which the kubelet starts them."""
    containers = pod.spec.containers or ()
    started = (*enumerate(pod.spec.init_containers, len(containers)), *enumerate(containers))
    inits = len(pod.spec.init_containers)
    return tuple(
        _container(container, position, init=at < inits) for at, (position, container) in enumerate(started)
    )


def _container(container: Container, position: int, *, init: bool) -> PodContainer:
    return PodContainer(
        container.name,
        position,
        init and container.restart_policy != "Always",
        {"limits": container.resources.limits, "requests": container.resources.requests},
    )


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

"""What the pods of this node hold and ask for, as the API server tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from cotenant.core.errors import BadInput
from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant
from cotenant.dialects.quantity import parse_whole
from cotenant.kube.api.objects import Container, Pod
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.demand import grant_of, has_ended

log = get_logger(__name__)


def grants_of(pods: Iterable[Pod]) -> dict[str, PodGrant]:
    """By pod UID. A grant that cannot be read is none: nothing starts with it."""
    found = {}
    for pod in pods:
        try:
            grant = grant_of(pod)
        except GrantUnreadable as error:
            meta = pod.metadata
            log.debug(
                "grant cannot be read", namespace=meta.namespace, pod=meta.name, uid=meta.uid, error=error
            )
            continue
        if grant is not None:
            found[pod.metadata.uid] = grant
    return found


def granted_on(uuid: str, grants: Mapping[str, PodGrant]) -> dict[str, int]:
    """Bytes on this card by pod UID; only of pods that have a share of it."""
    granted: dict[str, int] = {}
    for uid, grant in grants.items():
        for slot in grant.slots:
            for share in slot.shares:
                if share.uuid == uuid:
                    granted[uid] = granted.get(uid, 0) + share.memory
    return granted


def cards_in_use(grants: Mapping[str, PodGrant]) -> frozenset[str]:
    return frozenset(share.uuid for grant in grants.values() for slot in grant.slots for share in slot.shares)


def requested(pods: Iterable[Pod], resources: AbstractSet[str]) -> dict[str, int]:
    """What the node's pods ask for in all, as the kubelet counts it when it admits them anew."""
    total: dict[str, int] = {}
    for pod in pods:
        if not has_ended(pod):
            for name in resources:
                amount = _requested(pod, name)
                if amount:
                    total[name] = total.get(name, 0) + amount
    return total


def _requested(pod: Pod, name: str) -> int:
    """Containers and sidecars add up; an init container counts with the sidecars started before it."""
    sidecars = most = 0
    for each in pod.spec.init_containers:
        if each.restart_policy == "Always":
            sidecars += _amount(each, name)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + _amount(each, name))
    return max(most, sidecars + sum(_amount(each, name) for each in pod.spec.containers or ()))


def _amount(container: Container, name: str) -> int:
    text = container.resources.requests.get(name)
    if text is None:
        return 0
    try:
        return parse_whole(text, name, "4Gi")
    except BadInput:  # no API server takes it
        return 0

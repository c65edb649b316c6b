"""Reads the grants and container IDs of the node's pods from the API server's objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant
from cotenant.kube.api.objects import Pod
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.demand import grant_of

log = get_logger(__name__)

_SHORTEST_ID = 12
"""Characters of a container ID: a shorter one could be part of another container's cgroup by chance."""


def grants_of(pods: Iterable[Pod]) -> dict[str, PodGrant]:
    """Collects grants by pod UID. Those that cannot be read are left out: no container starts with one."""
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


def container_ids(pods: Iterable[Pod]) -> dict[tuple[str, str], str]:
    """Reads the container IDs from the pods' status, by pod UID and container name. One that is too short to
    be recognised in the name of a cgroup is empty.
    """
    found = {
        (pod.metadata.uid, status.name): status.container_id.rpartition("/")[2]
        for pod in pods
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }
    return {of: id if len(id) >= _SHORTEST_ID else "" for of, id in found.items()}


def granted_by_gpu(grants: Mapping[str, PodGrant]) -> dict[str, dict[str, int]]:
    """Adds up bytes by GPU and pod UID, for the GPUs of which a pod has a share."""
    granted: dict[str, dict[str, int]] = {}
    for uid, grant in grants.items():
        for slot in grant.slots:
            for share in slot.shares:
                on_gpu = granted.setdefault(share.uuid, {})
                on_gpu[uid] = on_gpu.get(uid, 0) + share.memory
    return granted

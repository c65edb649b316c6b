"""Adds up what a pod holds on each GPU, for the view of a cluster and of a node."""

from __future__ import annotations

from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.api.objects import Pod
from cotenant.observe.view import ShareView


def shares_of(pod: Pod, grant: PodGrant) -> tuple[ShareView, ...]:
    """One for each GPU: the containers of a pod may share one."""
    meta = pod.metadata
    found: dict[str, ShareView] = {}
    for slot in grant.slots:
        for share in slot.shares:
            before = found.get(share.uuid)
            compute = (share.compute or 0) + ((before.compute or 0) if before else 0)
            found[share.uuid] = ShareView(
                meta.uid,
                meta.name,
                share.uuid,
                share.memory + (before.memory if before else 0),
                compute or None,
                share.whole or (before is not None and before.whole),
                meta.namespace,
            )
    return tuple(found.values())

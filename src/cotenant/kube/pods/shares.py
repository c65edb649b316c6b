"""Adds up what a pod holds on each GPU, for the view of a cluster and of a node."""

from __future__ import annotations

from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.idleness import Idle, idleness
from cotenant.kube.pods.limit_held import limit_held
from cotenant.observe.view import ShareView


def shares_of(pod: Pod, grant: PodGrant) -> tuple[ShareView, ...]:
    """One for each GPU: the containers of a pod may share one."""
    meta, state, held = pod.metadata, idleness(pod), limit_held(pod)
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
                idle_since=state.since if isinstance(state, Idle) else None,
                enforcer_asked=held.asked if held is not None else "",
                enforcer=held.holds if held is not None else "",
                limit_problem=held.reason if held is not None and held.is_problem else "",
            )
    return tuple(found.values())

"""Words what MPS did to containers, and records it on their pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cotenant.kube.agent.grants import container_ids
from cotenant.kube.agent.mps.watching import Incident
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.kube.api.objects import Pod
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

ENDED = "GPUMpsEnded"
"""The reason of an event: the MPS server that a container used is gone, and its work on the GPU with it."""
WAITS = "GPUMpsWaits"
"""A container's process waits for the processes of another user."""
NOT_ENFORCED = "GPUComputeNotEnforced"

_NEXT = {
    "fault": "Processes on it get CUDA errors until they start anew. One fault ends all clients of a server: "
    "containers that must not share it ask for no cotenant.dev/gpu-compute",
    "server ended": "Its processes get CUDA errors until they start anew",
    "daemon ended": "It is started again; processes that get CUDA errors have to start anew",
    "waits for another user": "It goes on when all processes of that user have ended. Give the containers on "
    "this node the same runAsUser, or set mps.users to any",
}


class Recorder(Protocol):
    """`kube/events.py`"""

    def record(self, object: Pod, reason: str, message: str) -> None: ...


def report(incident: Incident, daemon: str, pods: Iterable[Pod], recorder: Recorder) -> None:
    """Records an event on each pod that was hit, with the names of its containers."""
    known = {pod.metadata.uid: pod for pod in pods}
    ids = container_ids(known.values())
    hit: dict[str, set[str]] = {}
    for owner in incident.owners:
        names = hit.setdefault(owner.uid, set())
        names |= {
            name for (uid, name), id in ids.items() if uid == owner.uid and id and owner.is_container(id)
        }
    reason = WAITS if incident.kind == "waits for another user" else ENDED
    for uid, names in hit.items():
        pod = known.get(uid)
        log.warning(
            "MPS has failed containers",
            kind=incident.kind,
            daemon=daemon,
            uid=uid,
            pod=pod.metadata.name if pod is not None else None,
            namespace=pod.metadata.namespace if pod is not None else None,
            containers=sorted(names),
        )
        if pod is not None:
            of = f"container {', '.join(sorted(names))}: " if names else ""
            recorder.record(pod, reason, f"{of}{incident.words}. {_NEXT[incident.kind]}")


def unenforced(slot: NodeSlot) -> str:
    """Says why MPS does not hold a container that asks for a share of compute, where a daemon runs."""
    if slot.limits.mode != "enforce":
        return f"limits are in the mode {slot.limits.mode}"
    return (
        f"it has {len(slot.shares)} GPUs, and each has a daemon of its own here, of which a process can use "
        "one: mps.daemons = 'node' has one for all"
    )

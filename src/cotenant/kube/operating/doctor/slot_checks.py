"""Slots on the nodes, as their agents tell of them, against grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.core.units import format_bytes
from cotenant.kube.operating.census import readable_grant
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, WARNING, Finding


def slots(facts: Facts) -> Iterator[Finding]:
    pods = {pod.metadata.uid: pod for pod in facts.pods}
    for node, state in facts.states.items():
        if not state.get("registered", True):
            yield Finding(
                "not-registered",
                f"node {node}",
                ERROR,
                f"the agent of {node} is not registered with the kubelet",
                "no GPU container starts there",
                "look at the agent's log: the kubelet's folder may be another than agent.kubelet says",
            )
        for slot in state.get("slots") or ():
            yield from _slot(node, slot, pods)


def _slot(node: str, slot: Mapping[str, Any], pods: Mapping[str, Any]) -> Iterator[Finding]:
    name = f"{slot.get('namespace')}/{slot.get('pod')}/{slot.get('container')}"
    target = f"{node}/{slot.get('device')}"
    pod = pods.get(str(slot.get("uid")))
    grant = readable_grant(pod) if pod is not None else None
    if grant is None:
        yield Finding(
            "slot-left",
            target,
            WARNING,
            f"{node} keeps the slot {slot.get('device')} of {name}, a pod that holds no grant there",
            "processes of it may still hold memory of the card",
            "the agent removes it when its last process has ended: if it stays, look for that process",
        )
        return
    granted = {
        share.uuid: share.memory
        for each in grant.slots
        if each.container == slot.get("container")
        for share in each.shares
    }
    limits = {str(uuid): int(size) for uuid, size in (slot.get("limits") or {}).items()}
    for uuid in sorted(granted.keys() | limits.keys()):
        if granted.get(uuid) != limits.get(uuid):
            yield Finding(
                "limit-differs",
                target,
                ERROR,
                f"{name} was granted {format_bytes(granted.get(uuid, 0))} on {uuid} and is limited to "
                f"{format_bytes(limits.get(uuid, 0))}",
                "it can use more or less than is charged for it",
                "delete the pod; its next container starts with the limit of its grant",
            )

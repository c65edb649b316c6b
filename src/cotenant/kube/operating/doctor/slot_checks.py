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
        for what in state.get("waits") or ():
            yield Finding(
                "agent-waits",
                f"node {node}",
                ERROR,
                f"the agent of {node} does not do all that it should: {what}",
                "GPU containers may not start there",
                "look at the agent's log",
            )
        kubelet = state.get("kubelet")
        for slot in state.get("slots") or ():
            yield from _slot(node, slot, pods)
            if kubelet is not None:
                yield from _record(node, slot, kubelet.get(slot.get("device")) or [])


def _record(node: str, slot: Mapping[str, Any], holders: list[str]) -> Iterator[Finding]:
    """The kubelet's own record of who holds the device."""
    name = _name(slot)
    if holders and holders != [name]:
        yield Finding(
            "slot-of-another",
            f"{node}/{slot.get('device')}",
            ERROR,
            f"the slot {slot.get('device')} of {node} was made for {name}, and the kubelet gave it to "
            f"{', '.join(holders)}",
            "that container runs with the limit of another",
            "delete that container's pod; its next start makes the slot anew",
        )


def _slot(node: str, slot: Mapping[str, Any], pods: Mapping[str, Any]) -> Iterator[Finding]:
    name = _name(slot)
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
    for uuid, used in (slot.get("used") or {}).items():
        if slot.get("mode") == "enforce" and int(used) > limits.get(uuid, 0):
            yield Finding(
                "over-limit",
                target,
                ERROR,
                f"{name} holds {format_bytes(int(used))} on {uuid}, more than its limit",
                "its neighbours on the card may be refused memory that is theirs",
                "delete the pod",
            )


def _name(slot: Mapping[str, Any]) -> str:
    return f"{slot.get('namespace')}/{slot.get('pod')}/{slot.get('container')}"

"""Slots on the nodes, as their agents tell of them, against grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cotenant.core.units import format_bytes
from cotenant.kube.api.objects import Pod
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, WARNING, Finding
from cotenant.kube.operating.status.census import readable_grant
from cotenant.observe.state import SlotState


def slots(facts: Facts) -> Iterator[Finding]:
    pods = {pod.metadata.uid: pod for pod in facts.pods}
    for node, told in facts.states.items():
        for what in told.waits:
            yield Finding(
                "agent-waits",
                f"node {node}",
                ERROR,
                f"the agent of {node} does not do all that it should: {what}",
                "GPU containers may not start there",
                f"kubectl logs -n {facts.installed.namespace} {_agent(facts, node)}",
            )
        for slot in told.slots:
            if not facts.is_unread("pods"):
                yield from _slot(facts, node, slot, pods)
            if told.kubelet is not None:
                yield from _record(node, slot, told.kubelet.get(slot.device, ()))


def _record(node: str, slot: SlotState, holders: Sequence[str]) -> Iterator[Finding]:
    """The kubelet's own record of who holds the device."""
    if holders and list(holders) != [slot.holder]:
        others = dict.fromkeys(holder.rpartition("/")[0] for holder in holders)
        yield Finding(
            "slot-of-another",
            f"{node}/{slot.device}",
            ERROR,
            f"the slot {slot.device} of {node} was made for {slot.holder}, and the kubelet gave it to "
            f"{', '.join(holders)}",
            "that container runs with the limit of another",
            f"{'; '.join(_delete(*each.split('/', 1)) for each in others if '/' in each)}: "
            "its next start makes the slot anew",
        )


def _slot(facts: Facts, node: str, slot: SlotState, pods: Mapping[str, Pod]) -> Iterator[Finding]:
    target = f"{node}/{slot.device}"
    pod = pods.get(slot.uid)
    grant = readable_grant(pod) if pod is not None and pod.spec.node_name == node else None
    if grant is None:
        yield _left(facts, node, slot)
        return
    granted = {
        share.uuid: share.memory
        for each in grant.slots
        if each.container == slot.container
        for share in each.shares
    }
    delete = _delete(slot.namespace, slot.pod)
    for uuid in sorted(granted.keys() | slot.limits.keys()):
        if granted.get(uuid) != slot.limits.get(uuid):
            yield Finding(
                "limit-differs",
                f"{target}/{uuid}",
                ERROR,
                f"{slot.holder} was granted {format_bytes(granted.get(uuid, 0))} on {uuid} and is limited to "
                f"{format_bytes(slot.limits.get(uuid, 0))}",
                "it can use more or less than is charged for it",
                f"{delete}: the next container starts with the limit of its grant",
            )
    for uuid, used in slot.used.items():
        if slot.mode == "enforce" and used > slot.limits.get(uuid, 0):
            yield Finding(
                "over-limit",
                f"{target}/{uuid}",
                ERROR,
                f"{slot.holder} holds {format_bytes(used)} on {uuid}, more than its limit",
                "its neighbours on the card may be refused memory that is theirs",
                delete,
            )


def _left(facts: Facts, node: str, slot: SlotState) -> Finding:
    """The agent removes it: at once when it is asked for, else within seconds of its last process."""
    lives = "a process lives in it" if slot.held else "no process lives in it"
    log = f"kubectl logs -n {facts.installed.namespace} {_agent(facts, node)}"
    process = f"nvidia-smi on {node} tells which processes hold memory: when the last one ends, the slot goes"
    remedy = process if slot.held else f"the agent does not remove it: {log}"
    return Finding(
        "slot-left",
        f"{node}/{slot.device}",
        WARNING,
        f"{node} keeps the slot {slot.device} of {slot.holder}, a pod that holds no grant there; {lives}",
        "memory of the card may still be held, and containers that need its room do not start",
        remedy,
    )


def _agent(facts: Facts, node: str) -> str:
    found = (pod.metadata.name for pod in facts.component("agent") if pod.spec.node_name == node)
    return next(found, "-l app.kubernetes.io/component=agent")


def _delete(namespace: str, pod: str) -> str:
    return f"kubectl delete pod -n {namespace} {pod}"

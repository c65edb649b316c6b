"""Compares the slots on the nodes, as their agents report them, with grants and with the kubelet's record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import delete_pod, look_at_agent
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.pods.demand import readable_grant
from cotenant.kube.pods.limit_held import limit_held
from cotenant.observe.state import SlotState

_MOST_NAMED = 8
"""Processes that a finding names."""

AGENT_WAITS = Kind("agent-waits", ERROR, "GPU containers may not start there")
OF_ANOTHER = Kind("slot-of-another", ERROR, "that container runs with the limit of another container")
LEFT = Kind(
    "slot-left",
    WARNING,
    "GPU memory may still be held, and containers that need it do not start",
)
LIMIT_DIFFERS = Kind("limit-differs", ERROR, "it can use more or less than is charged for it")
OVER_LIMIT = Kind("over-limit", ERROR, "other pods on that GPU may be refused memory that they were granted")
NOT_LIVE = Kind(
    "limit-not-live", ERROR, "it can take GPU memory of other pods: nothing holds it to what it was granted"
)


def waits(facts: Facts) -> Iterator[Finding]:
    for node, told in facts.states.items():
        for what in told.waits:
            found = f"the agent of {node} is not ready: {what}"
            yield AGENT_WAITS.at(f"node {node}", found, look_at_agent(facts, node))


def against_grants(facts: Facts) -> Iterator[Finding]:
    if facts.is_unread("pods"):
        return
    pods = {pod.metadata.uid: pod for pod in facts.pods}
    for node, slot in ((node, slot) for node, told in facts.states.items() for slot in told.slots):
        pod = pods.get(slot.uid)
        grant = readable_grant(pod) if pod is not None and pod.spec.node_name == node else None
        if grant is None:
            yield _left(facts, node, slot)
            continue
        granted = {
            share.uuid: share.memory
            for each in grant.slots
            if each.container == slot.container
            for share in each.shares
        }
        yield from _limits(node, slot, granted)


def not_live(facts: Facts) -> Iterator[Finding]:
    """Finds containers of which the driver reports a process that has not loaded the shim."""
    for node, told in facts.states.items():
        for slot in told.slots:
            if slot.unlimited:
                pids = ", ".join(map(str, slot.unlimited[:_MOST_NAMED]))
                yield NOT_LIVE.at(
                    f"{node}/{slot.device}",
                    f"{slot.holder} uses a GPU of {node} without the shim (processes {pids} of the host)",
                    "if the program is static or not linked with glibc, no limit can hold it: give it whole "
                    f"GPUs. Else see on {node} what keeps containers from reading /run/cotenant: `ausearch "
                    "-m avc` (SELinux; set settings.agent.slots_label), then delete the pod: "
                    f"{delete_pod(slot.namespace, slot.pod)}",
                )


def over_limit(facts: Facts) -> Iterator[Finding]:
    """Finds pods whose agent reports that they hold more than their limit."""
    for pod in facts.pods:
        held, meta = limit_held(pod), pod.metadata
        if held is not None and held.is_over and meta.deletion_timestamp is None:
            name = f"{meta.namespace}/{meta.name}"
            yield OVER_LIMIT.at(
                f"pod {name}",
                f"{name} on {pod.spec.node_name}: {held.details}",
                f"see docs/enforcers.md, Evicting; or delete it: {delete_pod(meta.namespace, meta.name)}",
            )


def _limits(node: str, slot: SlotState, granted: Mapping[str, int]) -> Iterator[Finding]:
    delete = delete_pod(slot.namespace, slot.pod)
    for uuid in sorted(granted.keys() | slot.limits.keys()):
        size, limit = granted.get(uuid), slot.limits.get(uuid)
        if size != limit:
            yield LIMIT_DIFFERS.at(
                f"{node}/{slot.device}/{uuid}",
                f"{slot.holder} was granted {format_bytes(size or 0)} on {uuid}, but its limit is "
                f"{format_bytes(limit or 0)}",
                f"delete it; its next container starts with the limit of its grant: {delete}",
            )
    for uuid, used in slot.used.items():
        if slot.mode == "enforce" and used > slot.limits.get(uuid, 0):
            found = f"{slot.holder} holds {format_bytes(used)} on {uuid}, more than its limit"
            yield OVER_LIMIT.at(f"{node}/{slot.device}/{uuid}", found, f"delete it: {delete}")


def _left(facts: Facts, node: str, slot: SlotState) -> Finding:
    """The agent removes such a slot: when a container asks for it, or within seconds of its last process."""
    holds = f"{node} keeps the slot {slot.device} of {slot.holder}, a pod that holds no grant there"
    if slot.held:
        found = f"{holds}; a process lives in it"
        do = f"run nvidia-smi on {node} to find that process; when it ends, the agent removes the slot"
    else:
        found = f"{holds}; no process lives in it"
        do = f"the agent should have removed it; {look_at_agent(facts, node)}"
    return LEFT.at(f"{node}/{slot.device}", found, do)


def against_kubelet(facts: Facts) -> Iterator[Finding]:
    """Compares with the kubelet's own record of which container holds which device."""
    for node, told in facts.states.items():
        for slot in told.slots:
            holders = (told.kubelet or {}).get(slot.device, ())
            if holders and list(holders) != [slot.holder]:
                yield _of_another(node, slot, holders)


def _of_another(node: str, slot: SlotState, holders: Sequence[str]) -> Finding:
    pods = dict.fromkeys(holder.rpartition("/")[0] for holder in holders)
    delete = "; ".join(delete_pod(*pod.split("/", 1)) for pod in pods if "/" in pod)
    return OF_ANOTHER.at(
        f"{node}/{slot.device}",
        f"the slot {slot.device} of {node} was made for {slot.holder}, but the kubelet gave it to "
        f"{', '.join(holders)}",
        f"delete that pod; its next start makes the slot again: {delete}",
    )


SUBJECT = ClusterSubject(
    checks=(waits, against_grants, against_kubelet, not_live, over_limit), lasting={LEFT.name: 12.0}
)

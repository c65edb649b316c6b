"""Explains where a pod runs, what it was granted there, and what enforces its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.core.grant import Share
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant, SlotGrant
from cotenant.dialects.wishes import read_mode
from cotenant.kube.api.objects import ContainerStatus, Node, Terminated
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.nodes.gpus import GpusUnreadable, NodeCard, NodeGpus, read_gpus
from cotenant.kube.operating.explain.case import Case, as_age
from cotenant.kube.operating.explain.explanation import Explanation
from cotenant.kube.pods.demand import grant_of, is_mirror
from cotenant.kube.pods.eligibility import ANYWHERE, obstacle
from cotenant.kube.pods.idleness import Idle, Idleness, Unknown, Working, idleness
from cotenant.kube.pods.limit_held import LimitHeld, limit_held

Cards = Mapping[str, NodeCard] | None
"""Of the pod's node, by UUID; None if they are not known."""

_MEANS = {
    "enforce": "memory beyond the limit is refused",
    "warn": "memory beyond the limit is given, counted, and said in the program's own output",
    "observe": "memory is counted, and nothing is refused",
}
_ENFORCERS = {
    "driver": "the driver, for all that the container's processes allocate",
    "shim": "the shim, for every program that calls the CUDA driver's library",
    "watch": "nothing at once: overuse is seen a moment later",
    "none": "nothing",
}
CRASHING = 600.0
"""Seconds without a crash after which a container counts as running: the kubelet then resets its back-off."""
_NORMAL = {"", "ContainerCreating", "PodInitializing"}
"""Reasons of containers that are waiting and will start."""


@dataclass(frozen=True, slots=True)
class ModeFound:
    mode: str
    source: str


def mode_of(annotations: Mapping[str, str], labels: Mapping[str, str], default: str) -> ModeFound:
    """Finds the mode that applies to a pod and where it is set. With one that cannot be read, the agent does
    not start the container.
    """
    for texts, source in ((annotations, "the pod's annotation"), (labels, "the namespace's label")):
        try:
            mode = read_mode(texts, source)
        except BadInput as error:
            return ModeFound("unknown", str(error))
        if mode is not None:
            return ModeFound(mode, f"{source} {names.ENFORCE}")
    return ModeFound(default, "the agent's default")


def explain_bound(case: Case) -> Explanation:
    """Explains a pod that has a node and asks for GPU."""
    pod, node = case.pod, case.pod.spec.node_name
    if is_mirror(pod):
        return _without_grant(
            case, "it is a static pod, a file on its node", "create it through the API server"
        )
    try:
        grant = grant_of(pod)
    except GrantUnreadable as error:
        return Explanation(
            case.target,
            "refused",
            "grant-unreadable",
            f"it is bound to {node}, and its grant is not valid, so its containers do not start: {error}",
            f"kubectl delete pod {case.flags}; if it comes again, cotenant doctor --cluster",
        )
    if grant is None:
        return _without_grant(
            case,
            "it was not bound by Cotenant",
            f"create it anew without nodeName, for the scheduler {case.settings.admission.scheduler}",
        )
    return _granted(case, grant)


def _without_grant(case: Case, why: str, step: str) -> Explanation:
    return Explanation(
        case.target,
        "refused",
        "no-grant",
        f"it is bound to {case.pod.spec.node_name} without a grant, so it does not start: {why}",
        step,
    )


def _granted(case: Case, grant: PodGrant) -> Explanation:
    pod, node = case.pod, case.node(case.pod.spec.node_name)
    told = _told(node)
    cards = {card.uuid: card for card in told.cards} if told is not None else None
    mode = mode_of(pod.metadata.annotations, case.labels, case.settings.agent.mode)
    granted = tuple(_slot(slot, cards) for slot in grant.slots)
    held = limit_held(pod)
    enforcer = held.holds if held is not None else told.enforcer if told is not None else "unknown"
    where = pod.spec.node_name
    state, reason, sentence, step = _state(case, node, f"{_sum(grant)} on {where}")
    if state == "running":
        sentence += f": {_ENFORCED.get(enforcer, 'limited')}, {mode.mode} by {mode.source}"
    if held is not None and held.is_problem:
        reason = "over-limit" if held.is_over else "limit-not-held"
        step = step or f"kubectl describe pod {case.flags}; docs/enforcers.md says what each reason means"
    use = idleness(pod) if state == "running" else Working()
    if isinstance(use, Idle):
        reason, sentence = "idle", f"{sentence}; idle for {as_age(max(0.0, case.now - use.since))}"
    shares = [share for slot in grant.slots for share in slot.shares]
    gone = [share.uuid for share in shares if cards is not None and share.uuid not in cards]
    if gone:
        reason, sentence = "card-gone", f"{sentence}; {where} shows {', '.join(gone)} no more"
        step = f"kubectl delete pod {case.flags}, and it is granted another GPU"
    return Explanation(
        case.target,
        state,
        reason,
        sentence,
        step,
        (
            ("granted", granted),
            ("limits", _limits(grant, told, mode, held)),
            ("use", _use(use)),
        ),
        {
            "node": where,
            "grant": [_slot_json(slot, cards) for slot in grant.slots],
            "enforcer": enforcer,
            "enforcerAsked": held.asked if held is not None else None,
            "limitHeld": None if held is None else {"reason": held.reason, "details": held.details},
            "mode": mode.mode,
            "modeFrom": mode.source,
            "computeEnforced": told.mps and mode.mode == "enforce" if told is not None else None,
            "idleSince": timestamp(use.since) if isinstance(use, Idle) else None,
        },
    )


_ENFORCED = {
    "driver": "limited by the driver",
    "shim": "limited by the shim",
    "watch": "watched",
    "none": "not limited",
}


def _state(case: Case, node: Node | None, holds: str) -> tuple[str, str, str, str]:
    pod = case.pod
    where = pod.spec.node_name
    if node is None and case.whole:
        return (
            "lost",
            "node-gone",
            f"it holds {holds}, and there is no node {where} any more",
            ("the pod is deleted by Kubernetes soon; its workload makes another"),
        )
    trouble = obstacle(ANYWHERE, node) if node is not None else None
    if trouble is not None and trouble.kind == "not-ready":
        return "unknown", "not-ready", f"it holds {holds}, and that node {trouble.found}", trouble.step
    if pod.metadata.deletion_timestamp is not None:
        return (
            "ending",
            "terminating",
            f"it is being deleted; it holds {holds} until its containers have ended",
            "",
        )
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    crashing = next((found for each in statuses if (found := _crash(case, each)) is not None), None)
    if crashing is not None:
        container, words = crashing
        step = f"read why it ended: kubectl logs {case.flags} -c {container} --previous"
        return "crashing", "crash-loop", f"it holds {holds}, and {words}", step
    stuck = next(
        (
            each
            for each in statuses
            if each.state.waiting is not None and each.state.waiting.reason not in _NORMAL
        ),
        None,
    )
    if stuck is not None and stuck.state.waiting is not None:
        waiting = stuck.state.waiting
        words = " ".join((waiting.message or case.warning or "").split())
        return (
            "starting",
            "does-not-start",
            (
                f"it holds {holds}, and container {stuck.name!r} does not start: {waiting.reason}"
                f"{f': {words}' if words else ''}"
            ),
            f"kubectl describe pod {case.flags}",
        )
    if pod.status.phase == "Pending":
        warned = f": {' '.join(case.warning.split())}" if case.warning else ""
        return "starting", "", f"it holds {holds}, and its containers are starting{warned}", ""
    return "running", "", f"it runs with {holds}", ""


def _use(state: Idleness) -> tuple[str, ...]:
    """Says what its agent reported; nothing of a pod that has always worked."""
    if isinstance(state, Idle):
        return (f"idle since {timestamp(state.since)}: no kernel launch and no allocation",)
    if isinstance(state, Unknown):
        return (f"not known: {state.reason}",)
    return (f"it works again since {timestamp(state.since)}",) if state.since is not None else ()


def _crash(case: Case, status: ContainerStatus) -> tuple[str, str] | None:
    """Returns the container and what happens to it if it ends again and again, also while it runs between two
    crashes: the kubelet restarts it later each time, and forgets that only after CRASHING seconds.
    """
    now_ended = status.state.terminated
    ended = now_ended or case.terminated.get(status.name)
    if status.state.waiting is not None and status.state.waiting.reason == "CrashLoopBackOff":
        how = "ends soon after each start, and the kubelet waits before it starts it again"
    elif now_ended is not None and _fails(case, now_ended):
        how = "has ended and is started again"
    elif now_ended is None and status.restart_count and ended and _fails(case, ended):
        how = "was started again after it had ended"
    else:
        return None
    times = f", {status.restart_count} restarts so far" if status.restart_count else ""
    return status.name, f"container {status.name!r} {how}{times}{_exit(case, ended)}"


def _fails(case: Case, ended: Terminated) -> bool:
    restarted = case.pod.spec.restart_policy != "Never"
    return restarted and ended.exit_code != 0 and _ago(case, ended) <= CRASHING


def _ago(case: Case, ended: Terminated) -> float:
    """Seconds since it ended."""
    return case.now - ended.finished_at.timestamp() if ended.finished_at is not None else 0.0


def _exit(case: Case, ended: Terminated | None) -> str:
    if ended is None:
        return ""
    reason = f" ({ended.reason})" if ended.reason not in {"", "Error"} else ""
    return f"; the last end, {as_age(_ago(case, ended))} ago: exit code {ended.exit_code}{reason}"


def _told(node: Node | None) -> NodeGpus | None:
    """Returns None if the node does not exist, may not be read, or its report is not valid."""
    if node is None:
        return None
    try:
        return read_gpus(node.metadata.annotations.get(names.GPUS))
    except GpusUnreadable:
        return None


def _sum(grant: PodGrant) -> str:
    shares = [share for slot in grant.slots for share in slot.shares]
    whole = len({share.uuid for share in shares if share.whole})
    memory = sum(share.memory for share in shares if not share.whole)
    parts = [f"{whole} whole GPU{'s' if whole > 1 else ''}"] if whole else []
    return " and ".join([*parts, *([f"{format_bytes(memory)} of GPU memory"] if memory else [])])


def _slot(slot: SlotGrant, cards: Cards) -> str:
    before = f" (and before it {', '.join(slot.init)})" if slot.init else ""
    who = f"{slot.container}{before}"
    return f"{who}: {', '.join(_share(share, cards) for share in slot.shares)}"


def _share(share: Share, cards: Cards) -> str:
    amount = "the whole of" if share.whole else f"{format_bytes(share.memory)} on"
    compute = f" and {share.compute}% of its compute" if share.compute else ""
    if cards is None:
        return f"{amount} {share.uuid}{compute}"
    card = cards.get(share.uuid)
    if card is None:
        return f"{amount} {share.uuid}, which is not there{compute}"
    sick = f", which is sick: {card.problem}" if card.problem is not None else ""
    return f"{amount} GPU {card.index} ({share.uuid}, {card.model}){compute}{sick}"


def _limits(
    grant: PodGrant, told: NodeGpus | None, mode: ModeFound, held: LimitHeld | None
) -> tuple[str, ...]:
    means = _MEANS.get(mode.mode, "the agent starts no container")
    lines = [
        f"memory: {_ENFORCERS.get(told.enforcer, told.enforcer) if told else 'its node does not tell'}",
        "asked and held: its agent has not reported what holds it yet"
        if held is None
        else f"asked {held.asked}, holds {held.holds} ({held.reason}): {held.details}",
        f"at the limit: {mode.mode} ({means}), by {mode.source}",
    ]
    if any(share.compute for slot in grant.slots for share in slot.shares):
        lines.append(f"compute: {_compute(told, mode)}")
    return tuple(lines)


def _compute(told: NodeGpus | None, mode: ModeFound) -> str:
    """The agent connects a container with MPS only where its limits are enforced."""
    if told is None or not told.mps:
        return "not enforced: no MPS on the node"
    return "enforced by MPS" if mode.mode == "enforce" else f"not enforced in the mode {mode.mode}"


def _slot_json(slot: SlotGrant, cards: Cards) -> dict[str, Any]:
    known = cards or {}
    return {
        "container": slot.container,
        "initContainers": list(slot.init),
        "gpus": [
            {
                **share.to_json(),
                "index": known[share.uuid].index if share.uuid in known else None,
                "model": known[share.uuid].model if share.uuid in known else None,
            }
            for share in slot.shares
        ],
    }

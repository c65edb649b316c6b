"""Chooses the one explanation of a pod that matters."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.nvidia import CARDS
from cotenant.kube.api.objects import Pod
from cotenant.kube.operating.explain.bound_pod import explain_bound
from cotenant.kube.operating.explain.case import Case
from cotenant.kube.operating.explain.explanation import Explanation
from cotenant.kube.operating.explain.line_view import LineView
from cotenant.kube.operating.explain.waiting_pod import explain_briefly, explain_waiting
from cotenant.kube.pods.containers import all_containers
from cotenant.kube.pods.demand import demand_of, has_ended
from cotenant.kube.scheduling.reasons import names_our_reason
from cotenant.observe.view import NodeView, WaitingView


def explain_pod(case: Case) -> Explanation:
    return _unless_waiting(case) or explain_waiting(case)


def explain_line(cases: Sequence[Case], view: LineView, seen: Sequence[NodeView]) -> list[WaitingView]:
    """Explains the pods in line, a sentence each, by the same rules as `explain_pod`.

    `seen`: the GPUs, read once for all of them.
    """
    return [explain_briefly(case, view, seen, _unless_waiting(case)) for case in cases]


def _unless_waiting(case: Case) -> Explanation | None:
    """Explains a pod that does not wait for GPUs. Returns None for one that does."""
    pod = case.pod
    again = f"delete it, correct it and create it anew: kubectl delete pod {case.flags}"
    try:
        demand = demand_of(pod, case.settings.dialects)
    except BadInput as error:
        return Explanation(case.target, "refused", "bad-demand", f"its demand is not valid: {error}", again)
    if not demand.slots:
        return _not_gpu(case)
    if has_ended(pod):
        return Explanation(
            case.target, "ended", "", f"it has ended ({pod.status.phase}) and holds nothing on any GPU"
        )
    if not all(_has_slot(pod, slot.container) for slot in demand.slots):
        return Explanation(
            case.target,
            "refused",
            "not-admitted",
            "it was created past Cotenant's webhook, so no container of it is given a GPU",
            f"{again}; why the webhook was not asked, `cotenant doctor --cluster` tells",
        )
    if pod.spec.node_name:
        return explain_bound(case)
    return _unbound(case)


def _unbound(case: Case) -> Explanation | None:
    pod, own = case.pod, case.settings.admission.scheduler
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if pod.metadata.deletion_timestamp is not None:
        return Explanation(
            case.target, "ending", "terminating", "it is being deleted before it was placed; it holds nothing"
        )
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return Explanation(
            case.target,
            "waiting",
            "gated",
            f"its scheduling gates keep every scheduler from it: {gates}",
            "the controller or person that set a gate removes it; it is in line from then on",
        )
    asked_us = names_our_reason(case.scheduler_says)
    if scheduler != own and not asked_us:
        return Explanation(
            case.target,
            "waiting",
            "other-scheduler",
            f"it names the scheduler {scheduler}, which has not asked Cotenant; Cotenant's own is {own}",
            f"create it anew with schedulerName: {own} or none, or let {scheduler} call Cotenant's extender",
        )
    if not case.whole:
        return Explanation(
            case.target,
            "waiting",
            "unknown",
            case.scheduler_says or "no scheduler has looked at it yet",
            "ask somebody who may list the cluster's nodes and pods for `cotenant explain`",
        )
    return None


def _not_gpu(case: Case) -> Explanation:
    other = next((name for name in (CARDS,) if _asks(case.pod, name)), None)
    if other is not None:
        sentence = f"it asks for {other}, which Cotenant does not serve here: the dialect nvidia is off"
        step = f"ask for {names.GPU} (whole GPUs) or {names.GPU_MEMORY} in place of it"
        return Explanation(case.target, "not-gpu", "other-resource", sentence, step)
    says = case.scheduler_says
    where = f"it runs on {case.pod.spec.node_name}" if case.pod.spec.node_name else "it is not placed yet"
    told = f"; kube-scheduler says: {says}" if says else ""
    return Explanation(
        case.target, "not-gpu", "", f"it asks for no GPU, so Cotenant has no part in it; {where}{told}"
    )


def _asks(pod: Pod, resource: str) -> bool:
    return any(resource in each.resources.limits for each in all_containers(pod))


def _has_slot(pod: Pod, container: str) -> bool:
    return any(
        names.GPU_SLOT in each.resources.limits for each in all_containers(pod) if each.name == container
    )

"""Compares grants with GPUs: what is granted must exist, be granted once, and be readable."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.errors import BadInput
from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.dialects.pod_grant import GrantUnreadable
from cotenant.kube.api.objects import Pod
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import delete_pod, few
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.pods.containers import all_containers
from cotenant.kube.pods.demand import (
    demand_of,
    grant_of,
    has_ended,
    holds_slot,
    is_mirror,
    readable_grant,
)

_ALL = 100
"""Percent."""

OVER_GRANTED = Kind(
    "over-granted", ERROR, "programs within their limits may be refused memory, or a whole GPU is shared"
)
UNREADABLE = Kind(
    "grant-unreadable", ERROR, "nothing is charged for it, and its containers do not start again"
)
FORGED = Kind(
    "grant-forged", ERROR, "nothing is charged for it; when it is bound, the server replaces that grant"
)
NO_GRANT = Kind("no-grant", ERROR, "its GPU containers do not start")
NOT_ADMITTED = Kind("not-admitted", ERROR, "it gets no GPU")
CARD_GONE = Kind("card-gone", ERROR, "its next container start fails")


def over_granted(facts: Facts) -> Iterator[Finding]:
    pods = {pod.metadata.uid: pod for pod in facts.pods}
    for card in facts.view.gpus:
        shared = any(each.whole for each in card.shares) and len(card.shares) > 1
        beyond = shared or card.granted > card.gpu.memory
        if not beyond and card.compute <= _ALL:
            continue
        who = ", ".join(f"{each} {format_bytes(each.memory)}" for each in card.shares)
        has, granted = format_bytes(card.gpu.memory), format_bytes(card.granted)
        youngest = max((pods[each.grant] for each in card.shares), key=_age)
        yield OVER_GRANTED.at(
            card.gpu.uuid,
            f"{card} has {has}, but {granted} are granted: {who}"
            if beyond
            else f"{card.compute}% of the compute of {card} is granted: {who}",
            f"delete one of these pods, for example the youngest: {_delete(youngest)}",
            means=None if beyond else "programs get less compute than they were granted",
        )


def _age(pod: Pod) -> str:
    created = pod.metadata.creation_timestamp
    return f"{created.isoformat() if created else ''} {_name(pod)}"


def unreadable(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pods:
        try:
            grant_of(pod)
        except GrantUnreadable as error:
            yield _at(
                UNREADABLE,
                pod,
                f"is bound to {pod.spec.node_name} with a grant that is not valid: {error}",
                f"delete it, and check that the policy cotenant-grants is in force: {_delete(pod)}",
            )


def forged(facts: Facts) -> Iterator[Finding]:
    """The server writes a grant together with the node's name; a grant without a node is somebody else's."""
    for pod in facts.pods:
        if names.GRANT in pod.metadata.annotations and not pod.spec.node_name and not has_ended(pod):
            yield _at(
                FORGED,
                pod,
                "has a grant but no node: Cotenant's server did not write that grant",
                f"delete it, and check that the policy cotenant-grants is in force: {_delete(pod)}",
            )


def without_grant(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pods:
        granted = names.GRANT in pod.metadata.annotations and not is_mirror(pod)
        if has_ended(pod) or granted or not _asks(pod, facts):
            continue
        if pod.spec.node_name:
            yield _bound_without_grant(pod)
        elif not holds_slot(pod):
            do = f"once the webhook is in place, delete the pod and create it again: {_delete(pod)}"
            yield _at(NOT_ADMITTED, pod, "asks for GPU, but the webhook did not see its creation", do)


def _bound_without_grant(pod: Pod) -> Finding:
    found = f"asks for GPU and is on {pod.spec.node_name} without a grant"
    if is_mirror(pod):
        do = f"take the GPU out of its manifest on {pod.spec.node_name}, or run it as a Deployment or Job"
        return _at(NO_GRANT, pod, f"{found}: it is a static pod", do)
    do = f"delete it, and let a scheduler that calls Cotenant's extender place it: {_delete(pod)}"
    return _at(NO_GRANT, pod, f"{found}: it was bound by the scheduler {pod.spec.scheduler_name}", do)


def card_gone(facts: Facts) -> Iterator[Finding]:
    """Only on nodes whose report can be read: of the others nothing is known."""
    cards = {
        node.name: {card.gpu.uuid for card in node.gpus} for node in facts.view.nodes if not node.trouble
    }
    for pod in facts.pods:
        grant, node = readable_grant(pod), pod.spec.node_name
        if grant is None or node not in cards:
            continue
        gone = sorted({share.uuid for slot in grant.slots for share in slot.shares} - cards[node])
        if gone:
            found = f"was granted {few(gone)}, which {node} does not report"
            yield _at(CARD_GONE, pod, found, f"delete it, and it is granted another GPU: {_delete(pod)}")


def _asks(pod: Pod, facts: Facts) -> bool:
    """Also with a demand that is not valid: the webhook would have refused it, so it did not see the pod."""
    dialects = facts.installed.settings.dialects
    try:
        return bool(demand_of(pod, dialects).slots)
    except BadInput:
        asked = (name for each in all_containers(pod) for name in each.resources.limits)
        return any(name in dialects.resources for name in asked)


def _at(kind: Kind, pod: Pod, found: str, do: str) -> Finding:
    return kind.at(f"pod {_name(pod)}", f"{_name(pod)} {found}", do)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _delete(pod: Pod) -> str:
    return delete_pod(pod.metadata.namespace, pod.metadata.name)


SUBJECT = ClusterSubject(checks=(over_granted, unreadable, forged, without_grant, card_gone))

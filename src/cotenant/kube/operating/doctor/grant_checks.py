"""Grants against cards: what is granted must be there, be granted once, and be readable."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.dialects.pod_grant import GrantUnreadable
from cotenant.kube.api.objects import Pod
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, Finding
from cotenant.kube.operating.status.census import readable_grant
from cotenant.kube.pods.demand import demand_of, grant_of, has_ended, is_mirror

_ALL = 100
"""Percent."""


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _delete(pod: Pod) -> str:
    return f"kubectl delete pod -n {pod.metadata.namespace} {pod.metadata.name}"


def over_granted(facts: Facts) -> Iterator[Finding]:
    pods = {pod.metadata.uid: pod for pod in facts.pods}
    for node in facts.census:
        for card in node.cards:
            whole = [each for each in card.held if each.whole]
            beyond = card.granted > card.card.memory or (whole and len(card.held) > 1)
            if not beyond and card.compute <= _ALL:
                continue
            who = ", ".join(f"{each} {format_bytes(each.memory)}" for each in card.held)
            has, granted = format_bytes(card.card.memory), format_bytes(card.granted)
            last = max((pods[each.uid] for each in card.held), key=_age)
            yield Finding(
                "over-granted",
                card.card.uuid,
                ERROR,
                f"{card} has {has}, and {granted} are granted: {who}"
                if beyond
                else f"of {card}, {card.compute}% of the compute are granted: {who}",
                "programs within their limits may be refused memory, or a whole card is shared"
                if beyond
                else "programs get less of the card than they were granted",
                f"let one of these pods go, the youngest for instance: {_delete(last)}",
            )


def _age(pod: Pod) -> str:
    created = pod.metadata.creation_timestamp
    return f"{created.isoformat() if created else ''} {_name(pod)}"


def unreadable(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pods:
        try:
            grant_of(pod)
        except GrantUnreadable as error:
            yield Finding(
                "grant-unreadable",
                f"pod {_name(pod)}",
                ERROR,
                f"{_name(pod)} is bound to {pod.spec.node_name} with a grant that is none: {error}",
                "nothing is charged for it, and its containers are not started again",
                f"{_delete(pod)}; who may write grants is kept by the policy cotenant-grants",
            )


def early(facts: Facts) -> Iterator[Finding]:
    """A grant is written together with the node's name; one without a node was written by somebody else."""
    for pod in facts.pods:
        if names.GRANT in pod.metadata.annotations and not pod.spec.node_name and not has_ended(pod):
            yield Finding(
                "grant-forged",
                f"pod {_name(pod)}",
                ERROR,
                f"{_name(pod)} carries a grant and has no node: Cotenant's server did not write it",
                "nothing is charged for it; when it is bound, the server's own grant takes its place",
                f"{_delete(pod)}; see that the policy cotenant-grants is in force",
            )


def without_grant(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pods:
        granted = names.GRANT in pod.metadata.annotations and not is_mirror(pod)
        if has_ended(pod) or granted or not _asks(pod, facts):
            continue
        if pod.spec.node_name:
            why = "a static pod" if is_mirror(pod) else f"bound by the scheduler {pod.spec.scheduler_name}"
            yield Finding(
                "no-grant",
                f"pod {_name(pod)}",
                ERROR,
                f"{_name(pod)} asks for GPU and is on {pod.spec.node_name} without a grant: {why}",
                "its GPU containers do not start",
                f"{_delete(pod)}, and let a scheduler with Cotenant's extender place it",
            )
        elif not _has_slot(pod):
            yield Finding(
                "not-admitted",
                f"pod {_name(pod)}",
                ERROR,
                f"{_name(pod)} asks for GPU and was created past the webhook",
                "it gets no card",
                f"{_delete(pod)} and create it anew, once the webhook is in place",
            )


def card_gone(facts: Facts) -> Iterator[Finding]:
    """Only of nodes that can be read: of the others nothing is known."""
    cards = {node.name: {card.card.uuid for card in node.cards} for node in facts.census if not node.trouble}
    for pod in facts.pods:
        grant = readable_grant(pod)
        if grant is None or pod.spec.node_name not in cards:
            continue
        gone = {share.uuid for slot in grant.slots for share in slot.shares} - cards[pod.spec.node_name]
        for uuid in sorted(gone):
            yield Finding(
                "card-gone",
                f"pod {_name(pod)}",
                ERROR,
                f"{_name(pod)} was granted {uuid}, which {pod.spec.node_name} does not show",
                "its next container start fails",
                f"{_delete(pod)}, and it is granted another card",
            )


def _asks(pod: Pod, facts: Facts) -> bool:
    """Also in a way that makes no sense: it came past the webhook, which would have refused it."""
    dialects = facts.installed.settings.dialects
    try:
        return bool(demand_of(pod, dialects).slots)
    except BadInput:
        containers = (*(pod.spec.containers or ()), *pod.spec.init_containers)
        return any(name in dialects.resources for each in containers for name in each.resources.limits)


def _has_slot(pod: Pod) -> bool:
    containers = (*(pod.spec.containers or ()), *pod.spec.init_containers)
    return any(names.GPU_SLOT in each.resources.limits for each in containers)

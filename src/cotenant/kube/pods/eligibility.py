"""Finds why a pod may not be placed on a node, GPUs aside: not Ready, cordoned, tainted, not selected.

Only the node's own state and the pod's spec are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cotenant.kube.api.objects import Condition, Node, Taint, find_condition


class Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


class Placement(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that says on which nodes it may be placed."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None

    @property
    def terms(self) -> Sequence[Mapping[str, Any]] | None:
        """The terms of its required node affinity, one must match; None if it has none."""
        node = (self.affinity or {}).get("nodeAffinity") or {}
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
        return None if required is None else required.get("nodeSelectorTerms") or ()

    @property
    def label_keys(self) -> tuple[str, ...]:
        """The labels of nodes that it looks at: nodes that agree in them, and in taints, are alike to it."""
        terms = (each for term in self.terms or () for each in term.get("matchExpressions") or ())
        return (*self.node_selector, *(each.get("key", "") for each in terms))

    @property
    def looks_at_names(self) -> bool:
        return any(term.get("matchFields") for term in self.terms or ())


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why a pod may not be placed on a node."""

    kind: str
    """Stable, for scripts: `not-ready`, `cordoned`, `tainted`, `not-selected`."""
    found: str
    """Continues a sentence after the node's name: `is cordoned`."""
    step: str


def obstacle(placement: Placement, node: Node) -> Obstacle | None:
    """Returns the first obstacle or None: the node's own state before the pod's spec."""
    name = node.metadata.name
    closed = _closed(node)
    if closed is not None:
        return closed
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not any(
            each.tolerates(taint) for each in placement.tolerations
        ):
            shown = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
            return Obstacle(
                "tainted",
                f"has the taint {shown}",
                f"give the pod a toleration for {taint.key}, or take the taint off: "
                f"kubectl taint node {name} {taint.key}:{taint.effect}-",
            )
    return _not_selected(placement, node)


def takes_pods(node: Node) -> bool:
    """Reports whether the node is Ready and not cordoned; most pods tolerate neither."""
    return _closed(node) is None


def _closed(node: Node) -> Obstacle | None:
    name = node.metadata.name
    ready = find_condition(node.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return Obstacle(
            "not-ready",
            f"is not Ready{_why(ready)}",
            f"kubectl describe node {name}; it is served again once it is Ready",
        )
    if node.spec.unschedulable:
        return Obstacle("cordoned", "is cordoned", f"kubectl uncordon {name}, when its work there is done")
    return None


def _why(ready: Condition | None) -> str:
    if ready is None:
        return ": its kubelet has never reported"
    since = f" since {ready.last_transition_time:%Y-%m-%d %H:%M:%S}" if ready.last_transition_time else ""
    words = " ".join((ready.message or ready.reason).split())
    return f"{since}{f': {words}' if words else ''}"


def _not_selected(placement: Placement, node: Node) -> Obstacle | None:
    labels = node.metadata.labels
    for key, value in placement.node_selector.items():
        if labels.get(key) != value:
            return Obstacle(
                "not-selected",
                f"has not the label {key}={value}",
                f"change the pod's nodeSelector, or kubectl label node {node.metadata.name} {key}={value}",
            )
    terms = placement.terms
    if terms is not None and not any(_matches(term, node) for term in terms):
        return Obstacle(
            "not-selected",
            "is not among those that the pod's nodeAffinity requires",
            "change its nodeAffinity",
        )
    return None


def _matches(term: Mapping[str, Any], node: Node) -> bool:
    expressions = [(each, node.metadata.labels) for each in term.get("matchExpressions") or ()]
    expressions += [(each, {"metadata.name": node.metadata.name}) for each in term.get("matchFields") or ()]
    return bool(expressions) and all(_holds(each, there) for each, there in expressions)


def _holds(expression: Mapping[str, Any], there: Mapping[str, str]) -> bool:
    found, values = there.get(expression.get("key", "")), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as which:
            try:
                left, right = int(found or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return left > right if which == "Gt" else left < right
    return False

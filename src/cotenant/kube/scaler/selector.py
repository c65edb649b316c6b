"""Matches pods by the selector of a workload, in either form: an object of its spec, or the text of its
scale.

A scale subresource gives its selector as text (`app=web,tier in (a,b)`); that is the only form that any kind
of workload has. Both forms become the same requirements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import BadInput

_MOST = 64
"""Requirements of one selector that are read."""
_SET = re.compile(r"(?P<key>[^\s=!,()]+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s=!,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=!,()]*)")
_EXISTS = re.compile(r"(?P<op>!?)\s*(?P<key>[^\s=!,()]+)")


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    """`In`, `NotIn`, `Exists` or `DoesNotExist`."""
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.key)
        match self.operator:
            case "In":
                return found is not None and found in self.values
            case "NotIn":
                return found is None or found not in self.values
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
        return False


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects pods. Without a requirement it selects none: nobody's pods are then taken for a workload's."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return bool(self.requirements) and all(each.holds(labels) for each in self.requirements)

    @property
    def equal(self) -> tuple[tuple[str, str], ...]:
        """The labels that every selected pod has, by which an index finds it."""
        return tuple(
            (each.key, each.values[0])
            for each in self.requirements
            if each.operator == "In" and len(each.values) == 1
        )


def read_selector(spec: Mapping[str, Any]) -> Selector:
    """Reads `spec.selector`: `matchLabels` and `matchExpressions`, or the plain labels of a
    ReplicationController.
    """
    labels, expressions = spec.get("matchLabels"), spec.get("matchExpressions")
    if not isinstance(labels, dict) and not isinstance(expressions, list):
        labels = spec
    found = [
        Requirement(key, "In", (value,))
        for key, value in (labels if isinstance(labels, dict) else {}).items()
        if isinstance(value, str)
    ]
    for each in expressions if isinstance(expressions, list) else ():
        values = tuple(each.get("values") or ())
        found.append(Requirement(each.get("key", ""), each.get("operator", ""), values))
    return Selector(tuple(found[:_MOST]))


def parse_selector(text: str) -> Selector:
    """Reads a selector as the scale subresource gives it."""
    found: list[Requirement] = []
    at = 0
    while at < len(text) and len(found) < _MOST:
        if text[at] in ", ":
            at += 1
            continue
        part = _SET.match(text, at) or _EQUAL.match(text, at) or _EXISTS.match(text, at)
        if part is None:
            raise BadInput(f"selector: {text[:200]!a} cannot be read at {text[at : at + 20]!a}")
        found.append(_requirement(part))
        at = part.end()
    return Selector(tuple(found))


def _requirement(part: re.Match[str]) -> Requirement:
    groups, key = part.groupdict(), part["key"]
    if "values" in groups:
        values = tuple(each.strip() for each in groups["values"].split(","))
        return Requirement(key, "In" if part["op"] == "in" else "NotIn", values)
    if "value" in groups:
        return Requirement(key, "NotIn" if part["op"] == "!=" else "In", (groups["value"],))
    return Requirement(key, "DoesNotExist" if part["op"] else "Exists")

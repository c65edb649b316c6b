"""Checks that the API server knows GpuScalers, with every field that this version reads and writes.

Helm does not always update a definition (`helm upgrade --skip-crds` of a chart around ours, a definition that
was applied by hand). A field that the definition lacks is dropped by the API server without an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import few, restore
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.scaler.definition import definition
from cotenant.kube.scaler.resource import GPU_SCALERS

NAME = f"{GPU_SCALERS.plural}.{GPU_SCALERS.group}"
MISSING = Kind(
    "definition-missing", ERROR, "no GpuScaler can be created or served; pods are placed nevertheless"
)
OUTDATED = Kind(
    "definition-outdated",
    ERROR,
    "the API server drops what it does not know: GpuScalers do something else than was written, or forget "
    "what they have learned",
)


def definitions(facts: Facts) -> Iterator[Finding]:
    """A program of another version does not know which fields the servers need."""
    if facts.is_unread("definition") or not facts.knows_installed:
        return
    target = f"definition {NAME}"
    do = restore(facts.installed.namespace, "scaler")
    if facts.definition is None:
        yield MISSING.at(target, f"the CustomResourceDefinition {NAME} does not exist", do)
        return
    conditions = (facts.definition.get("status") or {}).get("conditions") or ()
    refused = next((each for each in conditions if _is_refused(each)), None)
    if refused is not None:
        yield MISSING.at(
            target,
            f"the CustomResourceDefinition {NAME} is not served: {refused.get('message') or refused['type']}",
            f"kubectl describe crd {NAME}",
        )
    problem = _problem(facts.definition.get("spec") or {})
    if problem is not None:
        yield OUTDATED.at(target, f"the CustomResourceDefinition {NAME} {problem}", do)


def _is_refused(condition: Mapping[str, Any]) -> bool:
    kind, status = condition.get("type"), condition.get("status")
    if kind in {"NonStructuralSchema", "Terminating"}:
        return status == "True"
    return kind in {"Established", "NamesAccepted"} and status == "False"


@cache
def _wanted() -> Mapping[str, Any]:
    """Returns the version that this program knows. Slow: explanations are in the source."""
    version: Mapping[str, Any] = definition()["versions"][0]
    return version


def _problem(found: Mapping[str, Any]) -> str | None:
    wanted = _wanted()
    version = next((each for each in found.get("versions") or () if each.get("name") == wanted["name"]), None)
    if version is None or not version.get("served"):
        return f"does not serve {wanted['name']}"
    if "status" not in (version.get("subresources") or {}):
        return "has no status subresource"
    there = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    lacks = list(_lacks(wanted["schema"]["openAPIV3Schema"], there, ""))
    return f"lacks fields: {few(lacks)}" if lacks else None


def _lacks(wanted: Mapping[str, Any], there: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields the fields that `there` has not; of a field with fields in it, the outermost."""
    if there.get("x-kubernetes-preserve-unknown-fields"):
        return
    for inner in ("items", "additionalProperties"):
        if isinstance(wanted.get(inner), dict):
            yield from _lacks(wanted[inner], there.get(inner) or {}, path)
    for name, schema in (wanted.get("properties") or {}).items():
        below = (there.get("properties") or {}).get(name)
        place = f"{path}.{name}" if path else name
        if below is None:
            yield place
        else:
            yield from _lacks(schema, below, place)


SUBJECT = ClusterSubject(checks=(definitions,))

"""The policies that keep grants to the server and cards to GPU pods: they are there, and they deny."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, FIX, Finding, restore
from cotenant.kube.operating.doctor.installed_sum import ANNOTATION, sum_of

POLICIES = tuple(
    f"cotenant-{name}" for name in ("bindings", "cards", "demands", "grants", "modes", "nodes", "server")
)
REPAIR = "policy"
"""Of the binding, and of what happens when a policy cannot judge; a policy's own text is the chart's."""


def policies(facts: Facts) -> Iterator[Finding]:
    if facts.policies is None or facts.bindings is None:
        return
    for name in POLICIES:
        policy, binding = facts.policies.get(name), facts.bindings.get(name)
        if policy is None:
            yield _finding(facts, "policy", name, "is not there", None)
            continue
        if _is_altered(policy):
            yield _finding(facts, "policy-altered", name, "does not say what was installed", None)
        problems = [*_passes(policy), *binding_problems(name, binding)]
        if problems:
            yield _finding(facts, "policy", name, "; it ".join(problems), REPAIR)


def _finding(facts: Facts, kind: str, name: str, problem: str, repair: str | None) -> Finding:
    return Finding(
        kind,
        f"policy {name}",
        ERROR,
        f"the ValidatingAdmissionPolicy {name} {problem}",
        "an author of pods may get more than was granted: see docs/security.md",
        FIX if repair else restore(facts.installed.namespace, "policy"),
        repair,
    )


def _is_altered(policy: Mapping[str, Any]) -> bool:
    """By the sum that the chart wrote beside it; who changes it on purpose takes that off."""
    told = ((policy.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    return told is not None and told != sum_of(policy.get("spec") or {})


def _passes(policy: Mapping[str, Any]) -> Iterator[str]:
    if (policy.get("spec") or {}).get("failurePolicy") != "Fail":
        yield "lets pass what it cannot judge (failurePolicy)"


def wanted_binding(name: str) -> dict[str, Any]:
    """The binding's spec, as installed."""
    return {"policyName": name, "validationActions": ["Deny"]}


def binding_problems(name: str, binding: Mapping[str, Any] | None) -> Iterator[str]:
    if binding is None:
        yield "is bound to nothing"
        return
    spec = binding.get("spec") or {}
    if spec.get("policyName") != name:
        yield f"is bound to nothing: the binding of its name is of {spec.get('policyName')}"
    if "Deny" not in (spec.get("validationActions") or ()):
        yield "does not deny (validationActions of its binding)"
    if spec.get("matchResources"):
        yield "does not count everywhere (matchResources of its binding)"
    if spec.get("paramRef"):
        yield "is given parameters that it does not have (paramRef of its binding)"

"""Checks that the policies which keep grants to the server and GPUs to GPU pods exist and deny.

A policy's own text is the chart's and is not written here. Its binding and its `failurePolicy` are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.operating.doctor import gather
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.policy_checksum import ANNOTATION, checksum
from cotenant.kube.operating.doctor.remedies import FIX, restore
from cotenant.kube.operating.doctor.subject import ClusterSubject, guard_of

POLICIES = tuple(
    f"cotenant-{name}"
    for name in (
        "bindings",
        "cards",
        "demands",
        "grants",
        "idleness",
        "limits",
        "modes",
        "nodes",
        "objects",
        "reports",
        "server",
        "workloads",
    )
)
_MEANS = "the author of a pod may get more than was granted: see docs/security.md"
POLICY = Kind("policy", ERROR, _MEANS)
ALTERED = Kind("policy-altered", ERROR, _MEANS)


def policies(facts: Facts) -> Iterator[Finding]:
    if facts.policies is None or facts.bindings is None:
        return
    chart = restore(facts.installed.namespace, "policy")
    for name in POLICIES:
        policy, binding = facts.policies.get(name), facts.bindings.get(name)
        if policy is None:
            yield _at(POLICY, name, "does not exist", chart)
            continue
        if _is_altered(policy):
            yield _at(ALTERED, name, "was changed since it was installed", chart)
        problems = [*_policy_problems(policy), *_binding_problems(name, binding)]
        if problems:
            yield _at(POLICY, name, "; it ".join(problems), FIX, "policy")


def _at(kind: Kind, name: str, problem: str, do: str, repair: str | None = None) -> Finding:
    return kind.at(f"policy {name}", f"the ValidatingAdmissionPolicy {name} {problem}", do, repair)


def _is_altered(policy: Mapping[str, Any]) -> bool:
    """By the chart's checksum beside it. Who changes a policy on purpose removes the checksum."""
    told = ((policy.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    return told is not None and told != checksum(policy.get("spec") or {})


def _policy_problems(policy: Mapping[str, Any]) -> Iterator[str]:
    if (policy.get("spec") or {}).get("failurePolicy") != "Fail":
        yield "allows what it cannot evaluate (failurePolicy)"


def _installed_binding(name: str) -> dict[str, Any]:
    """The binding's spec, as installed."""
    return {"policyName": name, "validationActions": ["Deny"]}


def _binding_problems(name: str, binding: Mapping[str, Any] | None) -> Iterator[str]:
    if binding is None:
        yield "has no binding"
        return
    spec = binding.get("spec") or {}
    if spec.get("policyName") != name:
        yield f"has no binding: the binding of its name is for {spec.get('policyName')}"
    if "Deny" not in (spec.get("validationActions") or ()):
        yield "does not deny (validationActions of its binding)"
    if spec.get("matchResources"):
        yield "does not apply everywhere (matchResources of its binding)"
    if spec.get("paramRef"):
        yield "is given parameters that it does not take (paramRef of its binding)"


async def restore_policy(client: Client, _facts: Facts, finding: Finding) -> str:
    name = finding.target.removeprefix("policy ")
    found = await client.get(gather.POLICIES, name)
    done = []
    if list(_policy_problems(found)):
        step = {"op": "add", "path": "/spec/failurePolicy", "value": "Fail"}
        await client.json_patch(gather.POLICIES, name, [step], guard=guard_of(found))
        done.append("set failurePolicy to Fail")
    done += await _restore_binding(client, name, found)
    return ", ".join(done) or "nothing was left to do: it is as installed"


async def _restore_binding(client: Client, name: str, policy: dict[str, Any]) -> list[str]:
    wanted = _installed_binding(name)
    try:
        found = await client.get(gather.BINDINGS, name)
    except NotFound:
        labels = policy["metadata"].get("labels") or {}
        await client.create(gather.BINDINGS, {"metadata": {"name": name, "labels": labels}, "spec": wanted})
        return ["created its binding"]
    if not list(_binding_problems(name, found)):
        return []
    step = {"op": "add", "path": "/spec", "value": wanted}
    await client.json_patch(gather.BINDINGS, name, [step], guard=guard_of(found))
    return ["restored its binding: it denies everywhere"]


SUBJECT = ClusterSubject(checks=(policies,), repairs={"policy": restore_policy})

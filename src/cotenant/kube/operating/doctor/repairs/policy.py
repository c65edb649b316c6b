"""A policy denies again, everywhere. Its own text is the chart's, and is not written here."""

from __future__ import annotations

from typing import Any

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.gathering import BINDINGS, POLICIES
from cotenant.kube.operating.doctor.policy_checks import binding_problems, wanted_binding
from cotenant.kube.operating.doctor.repairs.repair import guard_of


async def policy(client: Client, _facts: Facts, finding: Finding) -> str:
    name = finding.target.removeprefix("policy ")
    found = await client.get(POLICIES, name)
    done = []
    if (found.get("spec") or {}).get("failurePolicy") != "Fail":
        step = {"op": "add", "path": "/spec/failurePolicy", "value": "Fail"}
        await client.json_patch(POLICIES, name, [step], guard=guard_of(found))
        done.append("it fails closed again")
    done += await _bind(client, name, found)
    return ", ".join(done) or "it is as installed by now"


async def _bind(client: Client, name: str, policy: dict[str, Any]) -> list[str]:
    wanted = wanted_binding(name)
    try:
        found = await client.get(BINDINGS, name)
    except NotFound:
        labels = policy["metadata"].get("labels") or {}
        await client.create(BINDINGS, {"metadata": {"name": name, "labels": labels}, "spec": wanted})
        return ["it is bound again"]
    if not list(binding_problems(name, found)):
        return []
    step = {"op": "add", "path": "/spec", "value": wanted}
    await client.json_patch(BINDINGS, name, [step], guard=guard_of(found))
    return ["it denies again, everywhere"]

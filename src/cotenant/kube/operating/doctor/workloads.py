"""Checks that Cotenant's own Deployments and DaemonSets exist and have the pods that they want."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.kube.operating.doctor.facts import COMPONENT, Facts
from cotenant.kube.operating.doctor.remedies import restore
from cotenant.kube.operating.doctor.subject import ClusterSubject

_RUNTIME_CLASS = re.compile(r'RuntimeClass "(?P<name>[^"]+)" not found')
_PARTS = {"agent": "daemonset", "server": "deployment"}
"""Components that every installation has, and the kind of workload that each is."""

NOT_INSTALLED = Kind("not-installed", ERROR, "a part of Cotenant does not run")
PODS_MISSING = Kind("pods-missing", ERROR, "a part of Cotenant does not run, or not on every node")
NO_NODES = Kind("no-nodes", WARNING, "no node offers GPUs, so no GPU pod is placed")

_MEANS = {
    "agent": "nodes without an agent report no GPUs, and no GPU container starts there",
    "server": "GPU pods are neither admitted nor placed",
}


def missing(facts: Facts) -> Iterator[Finding]:
    """Without any workload of ours, and where pods of a part exist, it is run in another way."""
    if not facts.workloads:
        return
    there = {_component(each) for each in facts.workloads}
    space = facts.installed.namespace
    for component, kind in _PARTS.items():
        if component not in there and not facts.component(component):
            yield NOT_INSTALLED.at(
                f"{kind} {space}/cotenant-{component}",
                f"there is no {kind} cotenant-{component} in namespace {space}",
                restore(space, component),
                means=_MEANS[component],
            )


def pods(facts: Facts) -> Iterator[Finding]:
    for workload in facts.workloads or ():
        meta, kind = workload["metadata"], workload["kind"].lower()
        place, wanted, has = f"{facts.installed.namespace}/{meta['name']}", _wanted(workload), _has(workload)
        if kind == "daemonset" and _observed(workload) and not wanted:
            yield NO_NODES.at(
                f"{kind} {place}",
                f"the {kind} {place} matches no node",
                f"see which nodes it wants: kubectl describe {kind} -n {facts.installed.namespace} "
                f"{meta['name']}; its nodeSelector and tolerations are values of the chart",
            )
        elif has < wanted:
            reason = " ".join((facts.not_created.get(meta["uid"]) or _failure(workload)).split())
            found = f"the {kind} {place} wants {wanted} pods and has {has}{f': {reason}' if reason else ''}"
            means = _MEANS.get(_component(workload))
            yield PODS_MISSING.at(f"{kind} {place}", found, _remedy(facts, workload, reason), means=means)


def _remedy(facts: Facts, workload: Mapping[str, Any], reason: str) -> str:
    absent = _RUNTIME_CLASS.search(reason)
    if absent is not None:
        return (
            f"create the RuntimeClass {absent['name']} (NVIDIA's GPU operator does; without it see "
            "docs/install.md), or, where NVIDIA's runtime is the nodes' default, install with "
            '--set settings.admission.runtime_class="" --set agent.runtimeClassName=""'
        )
    kind, name = workload["kind"].lower(), workload["metadata"]["name"]
    return f"find out why: kubectl describe {kind} -n {facts.installed.namespace} {name}"


def _failure(workload: Mapping[str, Any]) -> str:
    """Returns what its controller reports of pods that it could not create: a Deployment in a condition."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    failed = (
        each for each in conditions if each.get("type") == "ReplicaFailure" and each["status"] == "True"
    )
    return str(next((each.get("message", "") for each in failed), ""))


def _component(workload: Mapping[str, Any]) -> str:
    return str((workload["metadata"].get("labels") or {}).get(COMPONENT, ""))


def _observed(workload: Mapping[str, Any]) -> bool:
    """Whether its controller has seen it as it is now."""
    status = workload.get("status") or {}
    return int(status.get("observedGeneration", 0)) >= int(workload["metadata"].get("generation", 0))


def _wanted(workload: Mapping[str, Any]) -> int:
    status = workload.get("status") or {}
    return int(status.get("desiredNumberScheduled", (workload.get("spec") or {}).get("replicas", 0)) or 0)


def _has(workload: Mapping[str, Any]) -> int:
    status = workload.get("status") or {}
    return int(status.get("currentNumberScheduled", status.get("replicas", 0)) or 0)


SUBJECT = ClusterSubject(checks=(missing, pods), lasting={PODS_MISSING.name: 12.0})

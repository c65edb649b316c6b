"""Checks what namespaces say: the mode in which limits are enforced, and quotas."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.eviction import EVICTIONS
from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.core.mode import MODES
from cotenant.dialects import names
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.subject import ClusterSubject

BAD_MODE = Kind("bad-mode", ERROR, "GPU containers there do not start")
BAD_EVICTION = Kind("bad-eviction", WARNING, "the settings decide whether pods over their limit are evicted")
QUOTA_NOT_COUNTED = Kind(
    "quota-not-counted", WARNING, "pods of that namespace may take more than the quota says"
)


def modes(facts: Facts) -> Iterator[Finding]:
    for meta in facts.namespaces:
        said = meta.labels.get(names.ENFORCE)
        if said and said not in MODES:
            yield BAD_MODE.at(
                f"namespace {meta.name}",
                f"the label {names.ENFORCE} of namespace {meta.name} is {said!r}, not {' or '.join(MODES)}",
                f"set a mode: kubectl label namespace {meta.name} {names.ENFORCE}=enforce --overwrite",
            )


def evictions(facts: Facts) -> Iterator[Finding]:
    for meta in facts.namespaces:
        said = meta.labels.get(names.EVICT_OVER_LIMIT)
        if said and said not in EVICTIONS:
            key = names.EVICT_OVER_LIMIT
            yield BAD_EVICTION.at(
                f"namespace {meta.name}",
                f"the label {key} of namespace {meta.name} is {said!r}, not {' or '.join(EVICTIONS)}",
                f"set one: kubectl label namespace {meta.name} {key}=dry-run --overwrite",
            )


def quotas(facts: Facts) -> Iterator[Finding]:
    """Kubernetes counts extended resources under `requests.` only."""
    for quota in facts.quotas:
        namespace, name = quota.metadata.namespace, quota.metadata.name
        for resource in quota.spec.get("hard") or {}:
            if names.DOMAIN not in resource or resource.startswith("requests."):
                continue
            counted = f"requests.{resource.removeprefix('limits.')}"
            yield QUOTA_NOT_COUNTED.at(
                f"quota {namespace}/{name}",
                f"the ResourceQuota {namespace}/{name} limits {resource}, which Kubernetes does not count",
                f"write {counted} instead of {resource}: kubectl edit resourcequota -n {namespace} {name}",
            )


SUBJECT = ClusterSubject(checks=(modes, evictions, quotas))

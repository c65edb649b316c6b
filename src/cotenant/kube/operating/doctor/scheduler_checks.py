"""Schedulers that ask our extender: whether they ask about every node, and as they should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.dialects import names
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, FIX, Finding
from cotenant.kube.operating.doctor.scheduler_maps import parts

ALL = 100
VERBS = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
}
REPAIR = "scheduler"


def schedulers(facts: Facts) -> Iterator[Finding]:
    service = facts.installed.settings.extender.service
    for where, configuration in facts.schedulers.items():
        ours = our_extenders(configuration, service)
        if not ours:
            continue
        mended = where in facts.own_schedulers
        namespace, name, _ = parts(where)
        sampled = _sampled(configuration)
        if sampled:
            yield Finding(
                "scheduler-samples",
                where,
                ERROR,
                f"{where}: the scheduler {', '.join(sampled)} looks at a part of the nodes only",
                "in a big cluster a pod may wait though there is a node with room",
                FIX
                if mended
                else f"kubectl edit configmap -n {namespace} {name}: set percentageOfNodesToScore: {ALL} "
                "there and in profiles, and restart that scheduler",
                REPAIR if mended else None,
            )
        problems = [problem for extender in ours if (problem := _problem(extender)) is not None]
        if problems:
            yield Finding(
                "scheduler-extender",
                where,
                ERROR,
                f"{where}: {'; '.join(dict.fromkeys(problems))}",
                "GPU pods are bound without a grant, or others are evicted for nothing",
                FIX
                if mended
                else f"kubectl edit configmap -n {namespace} {name}: write it as docs/install.md shows, and "
                "restart that scheduler",
                REPAIR if mended else None,
            )


def our_extenders(configuration: Mapping[str, Any], service: str) -> list[dict[str, Any]]:
    """Those of its extenders that are ours, the very objects."""
    return [each for each in _mappings(configuration.get("extenders")) if _is_ours(each, service)]


def correct(configuration: dict[str, Any], service: str) -> None:
    """Changes what the checks above find, and nothing else."""
    if configuration.get("percentageOfNodesToScore") != ALL:
        configuration["percentageOfNodesToScore"] = ALL
    for profile in _mappings(configuration.get("profiles")):
        if profile.get("percentageOfNodesToScore", ALL) != ALL:
            profile["percentageOfNodesToScore"] = ALL
    for extender in our_extenders(configuration, service):
        extender.update(VERBS)
        if extender.get("ignorable"):
            extender["ignorable"] = False
        if not _asks_about_all(extender):
            told = extender["managedResources"]
            told.append({"name": names.GPU_SLOT, "ignoredByScheduler": False})


def _sampled(configuration: Mapping[str, Any]) -> list[str]:
    """Names of the profiles that see a sample."""
    percentage = configuration.get("percentageOfNodesToScore")
    return [
        ascii(profile.get("schedulerName", "default-scheduler")).strip("'")
        for profile in _mappings(configuration.get("profiles")) or [{}]
        if (own if (own := profile.get("percentageOfNodesToScore")) is not None else percentage) != ALL
    ]


def _problem(extender: Mapping[str, Any]) -> str | None:
    missing = [verb for verb in VERBS if not extender.get(verb)]
    if missing:
        return f"the extender has no {', '.join(missing)}"
    wrong = [verb for verb, word in VERBS.items() if str(extender[verb]).strip("/") != word]
    if wrong:
        return f"the extender does not know what {', '.join(wrong)} asks for"
    if extender.get("ignorable"):
        return "the extender is ignorable: while it does not answer, GPU pods are placed without it"
    if not _asks_about_all(extender):
        return "the extender is not asked about all GPU pods (managedResources)"
    return None


def _asks_about_all(extender: Mapping[str, Any]) -> bool:
    """Every GPU pod has a slot, and memory or whole cards. Without any names, all pods are asked about."""
    told = _managed(extender)
    return not told or names.GPU_SLOT in told or {names.GPU_MEMORY, names.GPU} <= told


def _managed(extender: Mapping[str, Any]) -> set[str]:
    return {str(each.get("name")) for each in _mappings(extender.get("managedResources"))}


def _is_ours(extender: Mapping[str, Any], service: str) -> bool:
    tls = extender.get("tlsConfig")
    told = str(tls.get("serverName")) if isinstance(tls, dict) else ""
    return (
        service in str(extender.get("urlPrefix")) or service in told or names.GPU_MEMORY in _managed(extender)
    )


def _mappings(found: Any) -> list[dict[str, Any]]:
    """Those of a list's members that are what they should be: anybody may have written it."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

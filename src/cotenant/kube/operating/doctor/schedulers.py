"""Checks that schedulers which call our extender call it for every node and as they should.

The configuration of our own scheduler is corrected. Those of others are theirs to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import CONFIG_MAPS
from cotenant.kube.extender.serving import CHOOSE, WITHOUT_GPU
from cotenant.kube.operating.doctor import rollout
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import FIX
from cotenant.kube.operating.doctor.scheduler_configmaps import is_configuration, is_own, parts, read
from cotenant.kube.operating.doctor.subject import ClusterSubject

DEPLOYMENT = "cotenant-scheduler"
ALL = 100
"""Percent of the nodes."""
VERBS = {
    "filterVerb": ("filter", CHOOSE),
    "prioritizeVerb": ("prioritize",),
    "preemptVerb": ("preempt",),
    "bindVerb": ("bind",),
}
"""Which words each may have; the first is right for every scheduler."""

SAMPLES = Kind(
    "scheduler-samples", ERROR, "in a large cluster a pod may wait although a node has room for it"
)
EXTENDER = Kind(
    "scheduler-extender", ERROR, "GPU pods are bound without a grant, or pods are evicted for nothing"
)


def schedulers(facts: Facts) -> Iterator[Finding]:
    service = facts.installed.settings.extender.service
    for where, configuration in facts.schedulers.items():
        ours = _our_extenders(configuration, service)
        if not ours:
            continue
        sampled = _sampled(configuration)
        if sampled:
            found = f"the scheduler {', '.join(sampled)} looks at only a part of the nodes"
            edit = f"set percentageOfNodesToScore to {ALL}, in profiles too,"
            yield _at(SAMPLES, facts, where, found, edit)
        problems = [problem for extender in ours if (problem := _problem(extender)) is not None]
        if _chooses_too_early(configuration, ours):
            problems.append(f"another extender filters after {CHOOSE}, and may refuse the only node it names")
        if problems:
            edit = "write it as docs/install.md shows"
            yield _at(EXTENDER, facts, where, "; ".join(dict.fromkeys(problems)), edit)


def _at(kind: Kind, facts: Facts, where: str, found: str, edit: str) -> Finding:
    if where in facts.own_schedulers:
        return kind.at(where, f"{where}: {found}", FIX, "scheduler")
    namespace, name, _ = parts(where)
    do = f"{edit} and restart that scheduler: kubectl edit configmap -n {namespace} {name}"
    return kind.at(where, f"{where}: {found}", do)


def _our_extenders(configuration: Mapping[str, Any], service: str) -> list[dict[str, Any]]:
    """Those of its extenders that are ours and place GPU pods: the objects themselves, not copies."""
    return [
        each
        for each in _mappings(configuration.get("extenders"))
        if _is_ours(each, service) and each.get("prioritizeVerb") != WITHOUT_GPU
    ]


def _sampled(configuration: Mapping[str, Any]) -> list[str]:
    """Names of the profiles that look at a sample of the nodes."""
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
    wrong = [verb for verb in VERBS if not _is_right(extender, verb)]
    if wrong:
        return f"the extender does not serve the path that {', '.join(wrong)} names"
    if extender.get("ignorable"):
        return "the extender is ignorable: while it does not answer, GPU pods are placed without it"
    if not _asks_about_all(extender):
        return "the extender is not called for all GPU pods (managedResources)"
    return None


def _is_right(extender: Mapping[str, Any], verb: str) -> bool:
    return str(extender.get(verb)).strip("/") in VERBS[verb]


def _chooses_too_early(configuration: Mapping[str, Any], ours: Sequence[Mapping[str, Any]]) -> bool:
    """Reports whether one of ours names a single node, and another extender is asked about that one after it.
    Pods would wait although they fit elsewhere.
    """
    chose = False
    for each in _mappings(configuration.get("extenders")):
        if chose and each.get("filterVerb"):
            return True
        chose |= _chooses(each) and any(each is own for own in ours)
    return False


def _chooses(extender: Mapping[str, Any]) -> bool:
    return str(extender.get("filterVerb")).strip("/") == CHOOSE


def _asks_about_all(extender: Mapping[str, Any]) -> bool:
    """Every GPU pod has a slot, and memory or whole GPUs. Without any names, it is called for all pods."""
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
    """The mappings of a list: anybody may have written it, so nothing is taken for granted."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


async def correct_scheduler(client: Client, facts: Facts, finding: Finding) -> str:
    """Keeps everything else that is written there, except comments. Restarts our own scheduler, and no other:
    it reads its configuration when it starts.
    """
    namespace, name, key = parts(finding.target)
    found = await client.get(CONFIG_MAPS, name, namespace)
    if not is_own(found, facts.installed.namespace) or key not in found.data:
        raise NotRepaired(f"the ConfigMap {namespace}/{name} is not Cotenant's any more")
    text = _corrected_text(found.data[key], facts.installed.settings.extender.service)
    if text == found.data[key]:
        return "nothing was left to do: it is right"
    await client.merge_patch(CONFIG_MAPS, name, {"data": {key: text}}, namespace, guard=Guard.of(found))
    try:
        await rollout.restart(client, facts, DEPLOYMENT)
    except NotFound:
        return "corrected it; restart that scheduler, which reads it when it starts"
    return f"corrected it, and restarted the Deployment {namespace}/{DEPLOYMENT}, which reads it"


def _corrected_text(text: str, service: str) -> str:
    """The same text if nothing is wrong with it."""
    try:
        documents = read(text)
    except ValueError as error:
        raise NotRepaired(str(error)) from None
    before = yaml.safe_dump_all(documents, sort_keys=False)
    for each in documents:
        if is_configuration(each):
            _correct(each, service)
    after = yaml.safe_dump_all(documents, sort_keys=False)
    return text if after == before else after


def _correct(configuration: dict[str, Any], service: str) -> None:
    """Changes what the checks above find, and nothing else."""
    if configuration.get("percentageOfNodesToScore") != ALL:
        configuration["percentageOfNodesToScore"] = ALL
    for profile in _mappings(configuration.get("profiles")):
        if profile.get("percentageOfNodesToScore", ALL) != ALL:
            profile["percentageOfNodesToScore"] = ALL
    ours = _our_extenders(configuration, service)
    too_early = _chooses_too_early(configuration, ours)
    for extender in ours:
        for verb, (usual, *_) in VERBS.items():
            if not _is_right(extender, verb) or (verb == "filterVerb" and too_early):
                extender[verb] = usual
        if extender.get("ignorable"):
            extender["ignorable"] = False
        if not _asks_about_all(extender):
            told = extender["managedResources"]
            told.append({"name": names.GPU_SLOT, "ignoredByScheduler": False})


SUBJECT = ClusterSubject(checks=(schedulers,), repairs={"scheduler": correct_scheduler})

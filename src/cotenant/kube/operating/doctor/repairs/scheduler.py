"""The configuration of the scheduler that came with the installation. It is read at a start only."""

from __future__ import annotations

import yaml

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import CONFIG_MAPS
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.repairs import rollout
from cotenant.kube.operating.doctor.repairs.repair import NotRepaired
from cotenant.kube.operating.doctor.scheduler_checks import correct
from cotenant.kube.operating.doctor.scheduler_maps import is_configuration, is_own, parts, read

DEPLOYMENT = "cotenant-scheduler"


async def scheduler(client: Client, facts: Facts, finding: Finding) -> str:
    """What else stands there is kept, but for comments. No other scheduler is restarted than our own."""
    namespace, name, key = parts(finding.target)
    found = await client.get(CONFIG_MAPS, name, namespace)
    if not is_own(found, facts.installed.namespace) or key not in found.data:
        raise NotRepaired(f"the ConfigMap {namespace}/{name} is not Cotenant's any more")
    text = corrected(found.data[key], facts.installed.settings.extender.service)
    if text == found.data[key]:
        return "it is right by now"
    await client.merge_patch(CONFIG_MAPS, name, {"data": {key: text}}, namespace, guard=Guard.of(found))
    try:
        await rollout.restart(client, facts, DEPLOYMENT)
    except NotFound:
        return "it is right again; restart that scheduler, which reads it at its start"
    return f"it is right again, and the Deployment {namespace}/{DEPLOYMENT} is restarted, which reads it"


def corrected(text: str, service: str) -> str:
    """The same text if nothing is wrong with it."""
    try:
        documents = read(text)
    except ValueError as error:
        raise NotRepaired(str(error)) from None
    before = yaml.safe_dump_all(documents, sort_keys=False)
    for each in documents:
        if is_configuration(each):
            correct(each, service)
    after = yaml.safe_dump_all(documents, sort_keys=False)
    return text if after == before else after

"""The webhook's configuration, as it was installed."""

from __future__ import annotations

import base64
from dataclasses import replace

from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.patches import Operation, pointer
from cotenant.kube.api.resources import SECRETS
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.certificates.renewal import from_data
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.repairs.repair import NotRepaired, guard_of
from cotenant.kube.operating.doctor.webhook_checks import altered_fields
from cotenant.kube.operating.installed import RAW_WEBHOOKS


async def ca_bundle(client: Client, facts: Facts, _finding: Finding) -> str:
    """The bundle is what the servers keep in their Secret; nothing else of the configuration is touched."""
    bundle = await _bundle(client, facts)
    found = await client.get(RAW_WEBHOOKS, NAME)
    steps: list[Operation] = [
        {
            "op": "add",
            "path": pointer("webhooks", str(at), "clientConfig", "caBundle"),
            "value": _text(bundle),
        }
        for at, each in enumerate(found.get("webhooks") or ())
        if (each.get("clientConfig") or {}).get("caBundle") != _text(bundle)
    ]
    if not steps:
        return "it trusts the right authority by now"
    await client.json_patch(RAW_WEBHOOKS, NAME, steps, guard=guard_of(found))
    return f"it trusts the authority in the Secret {SECRET} again"


async def webhook(client: Client, facts: Facts, _finding: Finding) -> str:
    bundle = await _bundle(client, facts)
    settings = facts.installed.settings
    wanted = webhook_configuration(settings, settings.dialects, bundle)
    try:
        found = await client.get(RAW_WEBHOOKS, NAME)
    except NotFound:
        labels = {"app.kubernetes.io/name": "cotenant", "app.kubernetes.io/component": "webhook"}
        await client.create(RAW_WEBHOOKS, {**wanted, "metadata": {"name": NAME, "labels": labels}})
        return "it is made anew, as it was installed"
    altered = altered_fields(replace(facts, installed=replace(facts.installed, webhook=found)))
    if not altered:
        return "it is as installed by now"
    (own,) = wanted["webhooks"]
    if "webhooks" in altered:
        steps: list[Operation] = [{"op": "add", "path": "/webhooks", "value": [own]}]
    else:
        keys = dict.fromkeys(each.partition(".")[0] for each in altered)
        steps = [{"op": "add", "path": pointer("webhooks", "0", key), "value": own[key]} for key in keys]
    await client.json_patch(RAW_WEBHOOKS, NAME, steps, guard=guard_of(found))
    return f"{', '.join(altered)} as installed again"


async def _bundle(client: Client, facts: Facts) -> bytes:
    secret = await client.get(SECRETS, SECRET, facts.installed.namespace)
    bundle = from_data(secret.data).bundle
    if not bundle:
        raise NotRepaired(f"the Secret {SECRET} holds no authority: the server makes one when it runs")
    return bundle


def _text(bundle: bytes) -> str:
    return base64.b64encode(bundle).decode()

"""Checks that the API server calls the webhook as it was installed, and restores its configuration."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.patches import Operation, pointer
from cotenant.kube.api.resources import SECRETS
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.certificates.renewal import from_data
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import FIX, restore
from cotenant.kube.operating.doctor.subject import ClusterSubject, guard_of
from cotenant.kube.operating.installed import RAW_WEBHOOKS

_OBJECT = f"the MutatingWebhookConfiguration {NAME}"
_TARGET = f"mutatingwebhookconfiguration {NAME}"

MISSING = Kind(
    "webhook-missing", ERROR, "GPU pods are not prepared when they are created: they get no slot and no GPU"
)
ALTERED = Kind("webhook-altered", ERROR, "GPU pods may be created without it, or other pods wait for it")
CA_BUNDLE = Kind("ca-bundle", ERROR, "the API server does not trust the webhook: no GPU pod can be created")


def configuration(facts: Facts) -> Iterator[Finding]:
    if facts.is_unread("webhook"):
        return
    missing = facts.installed.webhook is None
    altered = altered_fields(facts)
    if missing:
        kind, found = MISSING, f"{_OBJECT} does not exist"
    elif altered:
        kind, found = ALTERED, f"{_OBJECT} was changed since it was installed: {', '.join(altered)}"
    else:
        return
    if facts.knows_installed and not (missing and facts.certificates is None):
        yield kind.at(_TARGET, found, FIX, "webhook")
    else:
        yield kind.at(_TARGET, found, restore(facts.installed.namespace, "webhook"))


def authority(facts: Facts) -> Iterator[Finding]:
    if facts.is_unread("webhook") or facts.certificates is None:
        return
    wanted = _text(from_data(facts.certificates).bundle)
    webhooks = (facts.installed.webhook or {}).get("webhooks") or ()
    if any((each.get("clientConfig") or {}).get("caBundle") != wanted for each in webhooks):
        found = f"{_OBJECT} trusts another authority than the one in the Secret {SECRET}"
        yield CA_BUNDLE.at(_TARGET, found, f"{FIX}: it writes that authority", "ca-bundle")


def altered_fields(facts: Facts) -> list[str]:
    """Fields that were changed. The pods for which it is called depend on the settings, and are compared only
    if these are known.
    """
    found = (facts.installed.webhook or {}).get("webhooks") or []
    settings = facts.installed.settings
    (wanted,) = webhook_configuration(settings, settings.dialects)["webhooks"]
    if [each.get("name") for each in found] != [wanted["name"]]:
        return ["webhooks"]
    known = facts.installed.settings_known
    return [
        key
        for key, value in wanted.items()
        if key != "clientConfig" and (known or key != "matchConditions") and found[0].get(key) != value
    ] + [
        f"clientConfig.service.{key}"
        for key, value in wanted["clientConfig"]["service"].items()
        if ((found[0].get("clientConfig") or {}).get("service") or {}).get(key) != value
    ]


async def write_ca_bundle(client: Client, facts: Facts, _finding: Finding) -> str:
    """Writes the bundle that the servers keep in their Secret, and changes nothing else."""
    bundle = _text(await _bundle(client, facts))
    found = await client.get(RAW_WEBHOOKS, NAME)
    steps: list[Operation] = [
        {"op": "add", "path": pointer("webhooks", str(at), "clientConfig", "caBundle"), "value": bundle}
        for at, each in enumerate(found.get("webhooks") or ())
        if (each.get("clientConfig") or {}).get("caBundle") != bundle
    ]
    if not steps:
        return "nothing was left to do: it trusts the right authority"
    await client.json_patch(RAW_WEBHOOKS, NAME, steps, guard=guard_of(found))
    return f"wrote the authority of the Secret {SECRET}"


async def restore_webhook(client: Client, facts: Facts, _finding: Finding) -> str:
    bundle = await _bundle(client, facts)
    settings = facts.installed.settings
    wanted = webhook_configuration(settings, settings.dialects, bundle)
    try:
        found = await client.get(RAW_WEBHOOKS, NAME)
    except NotFound:
        labels = {"app.kubernetes.io/name": "cotenant", "app.kubernetes.io/component": "webhook"}
        await client.create(RAW_WEBHOOKS, {**wanted, "metadata": {"name": NAME, "labels": labels}})
        return "created it as it was installed"
    altered = altered_fields(replace(facts, installed=replace(facts.installed, webhook=found)))
    if not altered:
        return "nothing was left to do: it is as installed"
    (own,) = wanted["webhooks"]
    if "webhooks" in altered:
        steps: list[Operation] = [{"op": "add", "path": "/webhooks", "value": [own]}]
    else:
        keys = dict.fromkeys(each.partition(".")[0] for each in altered)
        steps = [{"op": "add", "path": pointer("webhooks", "0", key), "value": own[key]} for key in keys]
    await client.json_patch(RAW_WEBHOOKS, NAME, steps, guard=guard_of(found))
    return f"restored {', '.join(altered)}"


async def _bundle(client: Client, facts: Facts) -> bytes:
    secret = await client.get(SECRETS, SECRET, facts.installed.namespace)
    bundle = from_data(secret.data).bundle
    if not bundle:
        raise NotRepaired(f"the Secret {SECRET} holds no authority: the server creates one when it runs")
    return bundle


def _text(bundle: bytes) -> str:
    return base64.b64encode(bundle).decode()


SUBJECT = ClusterSubject(
    checks=(configuration, authority),
    repairs={"webhook": restore_webhook, "ca-bundle": write_ca_bundle},
)

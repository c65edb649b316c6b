"""What `--fix` does: only what cannot end or change a pod, and only what is as it should be afterwards.

Each repair reads what it is about once more, and writes guarded by that; the next look shows if it helped.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.certificate_keeper import SECRET
from cotenant.kube.certificate_set import from_data
from cotenant.kube.client import Client
from cotenant.kube.errors import NotFound
from cotenant.kube.node_gpus import drained_of, write_drained
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.server_checks import altered_fields
from cotenant.kube.operating.installed import RAW_WEBHOOKS
from cotenant.kube.patches import Guard, Operation, pointer
from cotenant.kube.resources import NODES, SECRETS

Repair = Callable[[Client, Facts, Finding], Awaitable[str]]


class NotRepaired(CotenantError):
    """It could not be done, or there is nothing left to do it to."""


async def _undrain(client: Client, _facts: Facts, finding: Finding) -> str:
    name, _, uuid = finding.target.partition("/")
    node = await client.get(NODES, name)
    after = drained_of(node) - {uuid}
    patch = {"metadata": {"annotations": {names.DRAINED: write_drained(sorted(after))}}}
    await client.merge_patch(NODES, name, patch, guard=Guard.of(node))
    return f"the drained mark of {uuid} is taken off {name}"


async def _ca_bundle(client: Client, facts: Facts, _finding: Finding) -> str:
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
    await client.json_patch(RAW_WEBHOOKS, NAME, steps, guard=_guard(found))
    return f"it trusts the authority in the Secret {SECRET} again"


async def _webhook(client: Client, facts: Facts, _finding: Finding) -> str:
    bundle = await _bundle(client, facts)
    settings = facts.installed.settings
    wanted = webhook_configuration(settings, settings.dialects, bundle)
    try:
        found = await client.get(RAW_WEBHOOKS, NAME)
    except NotFound:
        labels = {"app.kubernetes.io/name": "cotenant", "app.kubernetes.io/component": "webhook"}
        await client.create(RAW_WEBHOOKS, {**wanted, "metadata": {"name": NAME, "labels": labels}})
        return "it is made anew, as it was installed"
    altered = altered_fields(facts)
    (own,) = wanted["webhooks"]
    if "webhooks" in altered:
        steps: list[Operation] = [{"op": "replace", "path": "/webhooks", "value": [own]}]
    else:
        keys = dict.fromkeys(each.partition(".")[0] for each in altered)
        steps = [{"op": "add", "path": pointer("webhooks", "0", key), "value": own[key]} for key in keys]
    await client.json_patch(RAW_WEBHOOKS, NAME, steps, guard=_guard(found))
    return f"{', '.join(altered)} as installed again"


async def _bundle(client: Client, facts: Facts) -> bytes:
    secret = await client.get(SECRETS, SECRET, facts.installed.namespace)
    bundle = from_data(secret.data).bundle
    if not bundle:
        raise NotRepaired(f"the Secret {SECRET} holds no authority: the server makes one when it runs")
    return bundle


def _text(bundle: bytes) -> str:
    return base64.b64encode(bundle).decode()


def _guard(found: Mapping[str, Any]) -> Guard:
    return Guard(found["metadata"]["uid"], found["metadata"]["resourceVersion"])


REPAIRS: Mapping[str, Repair] = {"undrain": _undrain, "ca-bundle": _ca_bundle, "webhook": _webhook}

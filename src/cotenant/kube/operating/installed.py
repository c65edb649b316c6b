"""Where Cotenant is installed in a cluster, and with which settings: found, so that nobody has to say it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.kube.admission import configuration
from cotenant.kube.client import Client, Selection
from cotenant.kube.errors import KubeError, Unreachable
from cotenant.kube.resources import CONFIG_MAPS, Resource
from cotenant.kube.settings import Settings
from cotenant.kube.settings_file import read_settings

LABELS = "app.kubernetes.io/name=cotenant"
SETTINGS_KEY = "settings.toml"
RAW_WEBHOOKS: Resource[dict[str, Any]] = Resource(
    dict,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    group="admissionregistration.k8s.io",
    namespaced=False,
)


@dataclass(frozen=True)
class Installed:
    namespace: str
    settings: Settings = field(default_factory=Settings)
    webhook: dict[str, Any] | None = None
    """Its configuration as it stands; None if there is none, or it may not be seen."""
    settings_known: bool = False
    """Whether these are the installation's own settings; else the defaults are taken."""
    trouble: str | None = None
    """Why the settings could not be read."""


async def find_installed(client: Client) -> Installed:
    """The webhook's configuration belongs to the whole cluster, and names the namespace."""
    webhook = await _webhook(client)
    namespace = _namespace(webhook) or Settings().namespace
    try:
        maps = (await client.list(CONFIG_MAPS, Selection(namespace, labels=LABELS))).items
    except Unreachable:
        raise
    except KubeError as error:
        return Installed(namespace, Settings(namespace=namespace), webhook, trouble=str(error))
    texts = [each.data[SETTINGS_KEY] for each in maps if SETTINGS_KEY in each.data]
    if not texts:
        return Installed(namespace, Settings(namespace=namespace), webhook)
    try:
        settings = read_settings({"namespace": namespace, **tomllib.loads(texts[0])}, {})
    except (BadInput, tomllib.TOMLDecodeError) as error:
        return Installed(
            namespace, Settings(namespace=namespace), webhook, trouble=f"{SETTINGS_KEY}: {error}"
        )
    return Installed(namespace, settings, webhook, settings_known=True)


async def _webhook(client: Client) -> dict[str, Any] | None:
    try:
        return await client.get(RAW_WEBHOOKS, configuration.NAME)
    except Unreachable:
        raise
    except KubeError:
        return None


def _namespace(webhook: dict[str, Any] | None) -> str | None:
    for each in (webhook or {}).get("webhooks") or ():
        found = ((each.get("clientConfig") or {}).get("service") or {}).get("namespace")
        if found:
            return str(found)
    return None

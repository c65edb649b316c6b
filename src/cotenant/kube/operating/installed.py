"""Finds where Cotenant is installed in a cluster, and with which settings."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.kube.admission import configuration
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import KubeError, NotFound, Unreachable
from cotenant.kube.api.resources import CONFIG_MAPS, MUTATING_WEBHOOK_CONFIGURATIONS
from cotenant.kube.settings import Settings
from cotenant.settings.loading import read_settings

LABELS = "app.kubernetes.io/name=cotenant"
SETTINGS_KEY = "settings.toml"
RAW_WEBHOOKS = MUTATING_WEBHOOK_CONFIGURATIONS.raw


@dataclass(frozen=True)
class Installed:
    namespace: str
    settings: Settings = field(default_factory=Settings)
    webhook: dict[str, Any] | None = None
    """Its configuration as it is; None if it does not exist or may not be read."""
    webhook_trouble: str | None = None
    """Why it may not be read."""
    settings_known: bool = False
    """Whether these are the installation's own settings; else the defaults are taken."""
    trouble: str | None = None
    """Why the settings could not be read."""


async def find_installed(client: Client) -> Installed:
    """The webhook's configuration belongs to the whole cluster, and names the namespace. Where that was
    altered, the namespace that most installations have is looked at too; no other, since anybody may write
    settings into a namespace of their own.
    """
    webhook, hidden = await _webhook(client)
    usual = Settings().namespace
    named = _namespace(webhook) or usual
    found = await _installed_in(client, named)
    if named != usual and not found.settings_known and found.trouble is None:
        other = await _installed_in(client, usual)
        found = other if other.settings_known else found
    return replace(found, webhook=webhook, webhook_trouble=hidden)


async def _installed_in(client: Client, namespace: str) -> Installed:
    defaults = Settings(namespace=namespace)
    try:
        maps = (await client.list(CONFIG_MAPS, Selection(namespace, labels=LABELS))).items
    except Unreachable:
        raise
    except KubeError as error:
        return Installed(namespace, defaults, trouble=f"settings: {error}")
    texts = [each.data[SETTINGS_KEY] for each in maps if SETTINGS_KEY in each.data]
    if not texts:
        return Installed(namespace, defaults)
    try:
        settings = read_settings(
            Settings, {"namespace": namespace, **tomllib.loads(texts[0])}, {}, lambda _: None
        )
    except (BadInput, tomllib.TOMLDecodeError) as error:
        return Installed(namespace, defaults, trouble=f"{SETTINGS_KEY}: {error}")
    return Installed(namespace, settings, settings_known=True)


async def _webhook(client: Client) -> tuple[dict[str, Any] | None, str | None]:
    try:
        return await client.get(RAW_WEBHOOKS, configuration.NAME), None
    except NotFound:
        return None, None
    except Unreachable:
        raise
    except KubeError as error:
        return None, f"webhook: {error}"


def _namespace(webhook: dict[str, Any] | None) -> str | None:
    for each in (webhook or {}).get("webhooks") or ():
        found = ((each.get("clientConfig") or {}).get("service") or {}).get("namespace")
        if found:
            return str(found)
    return None

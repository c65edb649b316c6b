"""Reads the credentials of a GpuScaler from Secrets of its own namespace, each by its name.

The server has no right to list Secrets; which ones it may get is for the people of that namespace to grant.
"""

from __future__ import annotations

import base64
import binascii

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Forbidden, NotFound
from cotenant.kube.api.resources import SECRETS
from cotenant.signals.signal import Secrets, SignalError

_WITHIN = 4.0
"""Seconds for one read."""


def secrets_of(client: Client, namespace: str) -> Secrets:
    """Returns how a scaler's credentials are read: by name, from Secrets of its own namespace."""

    async def read(name: str, key: str) -> str:
        what = f"Secret {name} in namespace {namespace}"
        try:
            secret = await client.get(SECRETS, name, namespace, within=_WITHIN)
        except NotFound:
            raise SignalError(f"no {what}: create it") from None
        except Forbidden:
            raise SignalError(
                f"the server may not get the {what}: allow it with a Role and a RoleBinding for that one "
                "name (docs/gpuscaler.md)"
            ) from None
        text = secret.data.get(key)
        if text is None:
            raise SignalError(f"{what} has no key {key}")
        try:
            return base64.b64decode(text, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise SignalError(f"{what}: the value of {key} is not UTF-8 text") from None

    return read

"""Finds the address under which others reach this server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from ipaddress import ip_address

from cotenant.core.errors import BadInput
from cotenant.kube.settings import Settings


def own_address(settings: Settings, environ: Mapping[str, str]) -> str:
    """Takes server.address of the settings, else POD_IP."""
    address = settings.server.address or environ.get("POD_IP", "")
    with contextlib.suppress(ValueError):
        own = ip_address(address)
        if not own.is_unspecified:
            return str(own)
    raise BadInput(
        f"server.address: {address!r} is not an IP address of this server: others must know where it is: set "
        "it, or POD_IP in the environment"
    )

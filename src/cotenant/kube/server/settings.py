"""Declares the settings of a server as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotenant.settings.declaring import Duration


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server is reached, by the API server and by kube-scheduler."""

    address: str = ""
    """The address that it listens on and that it tells others; empty: all addresses, told as $POD_IP."""


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """How one server of several leads."""

    lease: str = "cotenant-server"
    """The Lease, in the namespace above, that the leader holds."""
    duration: Annotated[float, Duration(least=9)] = 10.0
    """A leader that has not renewed its lease for so long is followed by another. Less would leave no time
    for a Binding between two renewals.
    """

"""Declares the settings of the server as a whole: its address and leader election."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotenant.settings.declaring import Duration


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The address at which the API server and kube-scheduler reach the server."""

    address: str = ""
    """The address that it listens on and publishes; empty: it listens on all and publishes $POD_IP."""


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Leader election among several servers."""

    lease: str = "cotenant-server"
    """The Lease that the leader holds, in the namespace above."""
    duration: Annotated[float, Duration(least=9)] = 10.0
    """If the leader does not renew its Lease for this long, another server takes over. Less would leave no
    time for a Binding between two renewals.
    """

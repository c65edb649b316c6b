"""Declares the settings of the scheduler extender."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.settings.declaring import Port


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """Where kube-scheduler finds the extender. Only on a loopback address it speaks without TLS."""

    port: Port = 8444
    """The port it listens on."""
    service: str = "cotenant-extender"
    """The Service, without a selector, whose only endpoint is the leader; its DNS name stands in the
    certificate.
    """

"""Declares the settings of the scheduler extender."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.settings.declaring import Port


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """The extender's port and Service. It is plain HTTP only on a loopback address."""

    port: Port = 8444
    """The port it listens on."""
    service: str = "cotenant-extender"
    """The Service without a selector whose only endpoint is the leader; the certificate has its DNS name."""
    pods_without_gpu: bool = False
    """Whether the scheduler asks about pods without GPU, too: they are kept away from nodes with GPUs, and on
    these from CPU and memory that free GPUs need. With the chart this also sets up its scheduler.
    """

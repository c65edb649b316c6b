"""Declares the settings of the webhook and of what it changes in pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotenant.core.errors import BadInput
from cotenant.settings.declaring import Duration, Port, is_address, is_dns_name


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """What the webhook does with GPU pods."""

    scheduler: str = "cotenant"
    """The scheduler that calls our extender; it becomes the schedulerName of GPU pods."""
    replaced_schedulers: tuple[str, ...] = ("default-scheduler", "volcano")
    """A GPU pod whose schedulerName is one of these gets ours; a pod that names any other keeps it."""
    runtime_class: str = ""
    """The RuntimeClass for GPU pods without one, such as `nvidia`; empty: it is not set."""

    def __post_init__(self) -> None:
        if not self.scheduler:
            raise BadInput(
                "scheduler: a name is needed; where the default scheduler calls us, default-scheduler"
            )


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The webhook's port, Service and certificate."""

    port: Port = 8443
    """The port it listens on."""
    service: str = "cotenant-webhook"
    """The Service in front of it; its DNS name is in the certificate."""
    certificate_lifetime: Annotated[float, Duration(least=600)] = 90 * 86400.0
    """How long a certificate is valid; it is renewed when a third of that is left."""
    authority_lifetime: Annotated[float, Duration(least=6000)] = 3650 * 86400.0
    """How long the certificate authority is valid. When a third of that is left, its successor is trusted
    too; when a sixth is left, the successor signs. kube-scheduler must be restarted once in between.
    """
    extra_names: tuple[str, ...] = ()
    """More DNS names and IP addresses for the certificate, besides those of the Services."""

    def __post_init__(self) -> None:
        if self.authority_lifetime < 10 * self.certificate_lifetime:
            raise BadInput("authority_lifetime: it must be at least ten times certificate_lifetime")
        for name in self.extra_names:
            if not is_address(name) and not is_dns_name(name, wildcard=True):
                raise BadInput(f"extra_names: {name!a} is neither a DNS name nor an IP address")

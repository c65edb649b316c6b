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
    """The name of the scheduler that calls our extender: GPU pods are given to it."""
    replaced_schedulers: tuple[str, ...] = ("default-scheduler", "volcano")
    """Pods that name one of these are given to ours; a pod that names any other keeps it."""
    runtime_class: str = ""
    """The RuntimeClass for GPU pods that name none, such as `nvidia`; empty: none is set."""

    def __post_init__(self) -> None:
        if not self.scheduler:
            raise BadInput(
                "scheduler: a name is needed; where the default scheduler calls us, default-scheduler"
            )


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where the API server finds the webhook, and its certificate."""

    port: Port = 8443
    """The port it listens on."""
    service: str = "cotenant-webhook"
    """The Service in front of it; its DNS name stands in the certificate."""
    certificate_lifetime: Annotated[float, Duration(least=600)] = 90 * 86400.0
    """How long a certificate is good for; it is renewed when a third of that is left."""
    authority_lifetime: Annotated[float, Duration(least=6000)] = 3650 * 86400.0
    """How long the authority that signs them is good for. Its successor is trusted from when a third of that
    is left, and signs from when a sixth is left: kube-scheduler must start anew once in between.
    """
    extra_names: tuple[str, ...] = ()
    """DNS names and IP addresses that stand in the certificate besides those of the Services."""

    def __post_init__(self) -> None:
        if self.authority_lifetime < 10 * self.certificate_lifetime:
            raise BadInput("authority_lifetime: it must be at least ten times certificate_lifetime")
        for name in self.extra_names:
            if not is_address(name) and not is_dns_name(name, wildcard=True):
                raise BadInput(f"extra_names: {name!a} is neither a DNS name nor an IP address")

"""Declares the settings of KEDA's external scaler."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.core.errors import BadInput
from cotenant.settings.declaring import Port, is_dns_name


@dataclass(frozen=True, slots=True)
class KedaSettings:
    """KEDA's external scaler, which reports what GpuScalers have decided."""

    enabled: bool = False
    """Whether KEDA is answered."""
    port: Port = 8445
    """The port it listens on: gRPC with TLS."""
    service: str = "cotenant-keda"
    """The Service in front of it; its DNS name is in the certificate."""
    namespace: str = "keda"
    """KEDA's namespace. The CA bundle that verifies us is kept there in the ConfigMap cotenant-ca; empty:
    you bring the bundle to KEDA yourself.
    """

    def __post_init__(self) -> None:
        if not is_dns_name(self.service):
            raise BadInput(f"service: {self.service!a} is not the name of a Service")
        if self.namespace and not is_dns_name(self.namespace):
            raise BadInput(f"namespace: {self.namespace!a} is not the name of a namespace")

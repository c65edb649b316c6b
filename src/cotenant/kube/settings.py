"""Composes the settings of the server and the agent from the sections of their parts.

One file serves both processes; each reads the sections it needs. Defaults suit most clusters: an empty file
is valid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.settings import AdmissionSettings, WebhookSettings
from cotenant.kube.agent.mps.settings import MpsSettings
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.extender.settings import ExtenderSettings
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.overuse.settings import LimitsSettings
from cotenant.kube.scaler.keda.settings import KedaSettings
from cotenant.kube.scaler.settings import ScalerSettings
from cotenant.kube.server.settings import LeaderSettings, ServerSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    namespace: str = "cotenant-system"
    """The namespace of the server's own objects: Lease, certificate, Services."""
    kubeconfig: str = ""
    """The kubeconfig file; empty: the pod's service account, else $KUBECONFIG, else ~/.kube/config."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    log_format: Literal["logfmt", "json"] = "logfmt"
    """The format of log records, one line each; on a terminal they are coloured for reading instead."""
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    """What the webhook does with GPU pods."""
    server: ServerSettings = field(default_factory=ServerSettings)
    """The address at which the API server and kube-scheduler reach the server."""
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    """The webhook's port, Service and certificate."""
    extender: ExtenderSettings = field(default_factory=ExtenderSettings)
    """The extender's port and Service. It is plain HTTP only on a loopback address."""
    line: LineSettings = field(default_factory=LineSettings)
    """How waiting pods are served."""
    limits: LimitsSettings = field(default_factory=LimitsSettings)
    """What happens to pods that hold more GPU memory than their limit."""
    scaler: ScalerSettings = field(default_factory=ScalerSettings)
    """How GpuScalers are served, and how workloads that idle are released."""
    keda: KedaSettings = field(default_factory=KedaSettings)
    """KEDA's external scaler, which reports what GpuScalers have decided."""
    leader: LeaderSettings = field(default_factory=LeaderSettings)
    """Leader election among several servers."""
    agent: AgentSettings = field(default_factory=AgentSettings)
    """What the agent does on each GPU node."""
    mps: MpsSettings = field(default_factory=MpsSettings)
    """NVIDIA's MPS on GPU nodes, which holds containers to their share of compute."""
    dialects: Dialects = field(default_factory=Dialects)
    """The resource names of other GPU sharing systems that are understood."""

    def __post_init__(self) -> None:
        if not self.namespace:
            raise BadInput("namespace: a name is needed, such as cotenant-system")

"""Composes the settings of the server and the agent from the sections of their parts.

One file serves both processes; each reads the sections it needs. A default is what most clusters want: an
empty file is a good one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.settings import AdmissionSettings, WebhookSettings
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.extender.settings import ExtenderSettings
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.server.settings import LeaderSettings, ServerSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    namespace: str = "cotenant-system"
    """Where the server's own objects are: Lease, certificate, Services."""
    kubeconfig: str = ""
    """How to reach the API server; empty: as a pod, else $KUBECONFIG, else ~/.kube/config."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important messages that are logged."""
    log_format: Literal["logfmt", "json"] = "logfmt"
    """How a record is written, one line each; on a terminal it is coloured for reading instead."""
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    """What the webhook does with GPU pods."""
    server: ServerSettings = field(default_factory=ServerSettings)
    """Where the server is reached, by the API server and by kube-scheduler."""
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    """Where the API server finds the webhook, and its certificate."""
    extender: ExtenderSettings = field(default_factory=ExtenderSettings)
    """Where kube-scheduler finds the extender."""
    line: LineSettings = field(default_factory=LineSettings)
    """How waiting pods are served."""
    leader: LeaderSettings = field(default_factory=LeaderSettings)
    """How one server of several leads."""
    agent: AgentSettings = field(default_factory=AgentSettings)
    """What the agent does on each GPU node."""
    dialects: Dialects = field(default_factory=Dialects)
    """The other systems' spellings that are understood."""

    def __post_init__(self) -> None:
        if not self.namespace:
            raise BadInput("namespace: a name is needed, such as cotenant-system")

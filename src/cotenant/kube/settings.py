"""The settings of the server and the agent, with their defaults.

One file serves both; each reads the sections it needs. A default is what most clusters want: an empty file is
a good one. `settings_file` reads them, `settings_reference` prints them with these explanations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, Literal

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import Mode
from cotenant.hardware.standin.spec import parse_spec


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most that a number may be."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Duration:
    """Marks a number of seconds that is written with its unit: `60s`, `500ms`, `1h30m`."""

    least: float = 0.0


class Size:
    """Marks a number of bytes that is written as a quantity: `256Mi`."""


Port = Annotated[int, Range(1, 65535)]
Seconds = Annotated[float, Duration()]
Interval = Annotated[float, Duration(least=0.1)]
"""Time between two attempts: without any, they would be a hot loop."""
Bytes = Annotated[int, Size()]


@dataclass(frozen=True, slots=True)
class Admission:
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
class Server:
    """Where the server is reached, by the API server and by kube-scheduler."""

    address: str = ""
    """The address that it listens on and that it tells others; empty: all addresses, told as $POD_IP."""


@dataclass(frozen=True, slots=True)
class Webhook:
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
            if not _is_address(name) and not _DNS_NAME.fullmatch(name):
                raise BadInput(f"extra_names: {name!a} is neither a DNS name nor an IP address")


@dataclass(frozen=True, slots=True)
class Extender:
    """Where kube-scheduler finds the extender. Only on a loopback address it speaks without TLS."""

    port: Port = 8444
    """The port it listens on."""
    service: str = "cotenant-extender"
    """The Service, without a selector, whose only endpoint is the leader; its DNS name stands in the
    certificate.
    """


@dataclass(frozen=True, slots=True)
class Line:
    """How waiting pods are served."""

    patience: Seconds = 60.0
    """A pod that has waited so long has room held for it, so that smaller ones cannot starve it."""
    retry: Interval = 2.0
    """A pod that was told to try again and is still unbound is told again after this time."""
    evict: bool = True
    """A pod of higher priority may have others evicted also where a node's sums would do for it and only its
    cards are too full; kube-scheduler evicts where the sums do not do. PodDisruptionBudgets are kept.
    """


@dataclass(frozen=True, slots=True)
class Leader:
    """How one server of several leads."""

    lease: str = "cotenant-server"
    """The Lease, in the namespace above, that the leader holds."""
    duration: Annotated[float, Duration(least=9)] = 10.0
    """A leader that has not renewed its lease for so long is followed by another. Less would leave no time
    for a Binding between two renewals.
    """


@dataclass(frozen=True, slots=True)
class Agent:
    """What the agent does on each GPU node."""

    node: str = ""
    """The node's name; empty: the environment variable NODE_NAME, else the host's name."""
    address: str = ""
    """The address of its metrics; empty: all addresses. Only on a loopback address it speaks without TLS."""
    port: Port = 8889
    """The port of its metrics."""
    slots: str = "/run/cotenant"
    """The folder of the slots; it must be on tmpfs, and have the same path on the host."""
    kubelet: str = "/var/lib/kubelet"
    """The kubelet's folder, with the sockets of device plugins and of pod-resources."""
    simulate: str = ""
    """Simulated cards in place of the node's own, such as `2xA100-80GB`; empty: none."""
    survey: Interval = 10.0
    """Time between looks at the cards' health and at memory held outside grants."""
    survey_timeout: Interval = 30.0
    """A look that takes longer makes the cards sick: their driver hangs."""
    recovery: Seconds = 600.0
    """A card that reported a fault (XID) takes grants again when for so long there was no other."""
    context_memory: Bytes = 512 * 2**20
    """What a process is charged for its CUDA context where the card does not tell."""
    clients_per_gpu: Annotated[int, Range(1, 1024)] = 128
    """Slots offered for each card: as many containers may use it at once."""
    mode: Mode = "enforce"
    """What happens at a limit where neither the pod nor its namespace says it."""

    def __post_init__(self) -> None:
        if self.node and not is_node_name(self.node):
            raise BadInput(f"node: {self.node!a} is no node's name: see `kubectl get nodes`")
        if self.address and not _is_address(self.address):
            raise BadInput(f"address: {self.address!a} is not an IP address")
        for name, folder in (("slots", self.slots), ("kubelet", self.kubelet)):
            if not folder.startswith("/") or "\0" in folder:
                raise BadInput(f"{name}: {folder!a} is not the absolute path of a folder")
        if self.simulate:
            try:
                parse_spec(self.simulate)
            except BadInput as error:
                raise BadInput(f"simulate: {error}") from None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    namespace: str = "cotenant-system"
    """Where the server's own objects are: Lease, certificate, Services."""
    kubeconfig: str = ""
    """How to reach the API server; empty: as a pod, else $KUBECONFIG, else ~/.kube/config."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important messages that are logged."""
    admission: Admission = field(default_factory=Admission)
    """What the webhook does with GPU pods."""
    server: Server = field(default_factory=Server)
    """Where the server is reached, by the API server and by kube-scheduler."""
    webhook: Webhook = field(default_factory=Webhook)
    """Where the API server finds the webhook, and its certificate."""
    extender: Extender = field(default_factory=Extender)
    """Where kube-scheduler finds the extender."""
    line: Line = field(default_factory=Line)
    """How waiting pods are served."""
    leader: Leader = field(default_factory=Leader)
    """How one server of several leads."""
    agent: Agent = field(default_factory=Agent)
    """What the agent does on each GPU node."""
    dialects: Dialects = field(default_factory=Dialects)
    """The other systems' spellings that are understood."""

    def __post_init__(self) -> None:
        if not self.namespace:
            raise BadInput("namespace: a name is needed, such as cotenant-system")


_DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_node_name(text: str) -> bool:
    """Whether Kubernetes would take it."""
    return _DNS_NAME.fullmatch(text) is not None and "*" not in text

"""Declares the settings of the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotenant.core.errors import BadInput
from cotenant.core.mode import DEFAULT_MODE, Mode
from cotenant.hardware.standin.spec import parse_spec
from cotenant.settings.declaring import Bytes, Interval, Port, Range, Seconds, is_address, is_dns_name


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent does on each GPU node."""

    node: str = ""
    """The node's name; empty: the environment variable NODE_NAME, else the host's name."""
    address: str = ""
    """The address of its metrics; empty: all addresses. Only on a loopback address it speaks without TLS."""
    port: Port = 8889
    """The port of its metrics."""
    certificate: str = "/etc/cotenant-certificate"
    """The folder of the certificate of its metrics (tls.crt, tls.key), which the server issues. While there
    is none, it serves a self-signed one.
    """
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
    mode: Mode = DEFAULT_MODE
    """What happens at a limit where neither the pod nor its namespace says it."""

    def __post_init__(self) -> None:
        if self.node and not is_dns_name(self.node):
            raise BadInput(f"node: {self.node!a} is no node's name: see `kubectl get nodes`")
        if self.address and not is_address(self.address):
            raise BadInput(f"address: {self.address!a} is not an IP address")
        folders = {"slots": self.slots, "kubelet": self.kubelet, "certificate": self.certificate}
        for name, folder in folders.items():
            if not folder.startswith("/") or "\0" in folder:
                raise BadInput(f"{name}: {folder!a} is not the absolute path of a folder")
        if self.simulate:
            try:
                parse_spec(self.simulate)
            except BadInput as error:
                raise BadInput(f"simulate: {error}") from None

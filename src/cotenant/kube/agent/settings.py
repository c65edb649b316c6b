"""Declares the settings of the agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from cotenant.core.errors import BadInput
from cotenant.core.mode import DEFAULT_MODE, Mode
from cotenant.hardware.enforcers.choosing import Wanted
from cotenant.hardware.standin.spec import parse_spec
from cotenant.settings.declaring import (
    Bytes,
    BytesOrZero,
    Duration,
    Interval,
    Port,
    Range,
    Seconds,
    is_address,
    is_dns_name,
)

_SELINUX_CONTEXT = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.,-]+){2,4}")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent does on each GPU node."""

    node: str = ""
    """The node's name; empty: the environment variable NODE_NAME, else the host name."""
    address: str = ""
    """The address that it serves metrics on; empty: all. It is plain HTTP only on a loopback address."""
    port: Port = 8889
    """The port that it serves metrics on."""
    certificate: str = "/etc/cotenant-certificate"
    """The folder of the certificate of its metrics (tls.crt, tls.key), which the server issues. While it is
    missing, the agent serves a self-signed one.
    """
    slots: str = "/run/cotenant"
    """The folder of the slots; it must be on tmpfs, and have the same path on the host."""
    slots_size: BytesOrZero = 2**30
    """Size of the tmpfs that the chart mounts there, the most that containers can take of it together. A
    slot has 516Ki. 0: none is mounted.
    """
    slots_label: str = ""
    """SELinux context of the files on that tmpfs, such as `system_u:object_r:container_file_t:s0`: containers
    must be able to read them. Empty: the host's policy decides.
    """
    kubelet: str = "/var/lib/kubelet"
    """The kubelet's folder, with the sockets of device plugins and of pod-resources."""
    simulate: str = ""
    """Simulated GPUs instead of the node's own, such as `2xA100-80GB`; empty: the node's own."""
    survey: Interval = 10.0
    """Time between surveys of the GPUs' health and of memory held outside grants."""
    survey_timeout: Interval = 30.0
    """If a survey takes longer, the driver hangs, and the GPUs count as unhealthy."""
    recovery: Seconds = 600.0
    """A GPU that reported a fault (XID) gets new grants again after this time without another fault."""
    idle: Annotated[float, Duration(least=1.0)] = 10.0
    """A pod that has not used its GPUs for this time gets the condition `cotenant.dev/GPUIdle`, and one that
    works every few seconds three times as late.
    """
    context_memory: Bytes = 512 * 2**20
    """Memory charged for a process's CUDA context where the driver does not report it."""
    clients_per_gpu: Annotated[int, Range(1, 1024)] = 128
    """Slots of each GPU: the most containers that may use it at once."""
    mode: Mode = DEFAULT_MODE
    """The mode at a limit, if neither the pod's annotation nor the namespace's label sets one."""
    enforcer: Wanted = "auto"
    """What holds containers to their memory: `driver`, `shim`, `watch` or `none`; `auto`: the strongest that
    the node offers. Where one is set and cannot be used, the agent is not ready.
    """
    watch_grace: Seconds = 5.0
    """A container that holds more than its limit for this time is reported."""

    def __post_init__(self) -> None:
        if self.node and not is_dns_name(self.node):
            raise BadInput(f"node: {self.node!a} is not the name of a node: see `kubectl get nodes`")
        if self.address and not is_address(self.address):
            raise BadInput(f"address: {self.address!a} is not an IP address")
        folders = {"slots": self.slots, "kubelet": self.kubelet, "certificate": self.certificate}
        for name, folder in folders.items():
            if not folder.startswith("/") or "\0" in folder:
                raise BadInput(f"{name}: {folder!a} is not the absolute path of a folder")
        if self.slots_label and not _SELINUX_CONTEXT.fullmatch(self.slots_label):
            raise BadInput(
                f"slots_label: {self.slots_label[:100]!a} is not an SELinux context, such as "
                "system_u:object_r:container_file_t:s0"
            )
        if self.simulate:
            try:
                parse_spec(self.simulate)
            except BadInput as error:
                raise BadInput(f"simulate: {error}") from None

"""Declares the settings of MPS on GPU nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cotenant.core.errors import BadInput
from cotenant.dialects.mps import parse_mebibytes
from cotenant.settings.declaring import BytesOrZero, Form, Range


@dataclass(frozen=True, slots=True)
class MpsSettings:
    """NVIDIA's MPS on GPU nodes, which holds containers to their share of compute."""

    daemons: Literal["off", "node", "card"] = "off"
    """Control daemons on each node: none, one for all GPUs, or one for each GPU. One client's fault ends all
    clients of its server: with `card` only those on the same GPU. A container with several GPUs needs `node`.
    """
    supervise: bool = True
    """Whether the agent starts the daemons itself and starts them again when they end. False: another process
    does, as the container `mps` of the chart's DaemonSet.
    """
    users: Literal["one", "any"] = "one"
    """Whose processes share a server: those of one user at a time, while others wait, or of any user (option
    -multiuser-server; the driver must have it, from r555 on).
    """
    program: str = ""
    """The path of nvidia-cuda-mps-control; empty: found on PATH."""
    size: BytesOrZero = 2**30
    """Size of the tmpfs that the chart mounts at mps in the folder of the slots: sockets, logs and the shared
    memory of containers. 0: none is mounted.
    """
    shared_memory: str = ""
    """The folder on the host that GPU containers get as /dev/shm. It must be the daemon's own /dev/shm too.
    Empty: mps/shm in the folder of the slots, as the chart has it.
    """
    active_thread_percentage: Annotated[int, Range(1, 100)] = 100
    """The most that one client may get of a GPU's compute, whatever it asks for."""
    pinned_memory: Annotated[str, Form("^([1-9][0-9]{0,8}[MG])?$")] = ""
    """The most GPU memory of one client process, such as 1536M or 3G, whatever it asks for; empty: no limit.
    """

    def __post_init__(self) -> None:
        for name, path in (("program", self.program), ("shared_memory", self.shared_memory)):
            if path and (not path.startswith("/") or "\0" in path):
                raise BadInput(f"{name}: {path[:100]!a} is not an absolute path")
        if self.pinned_memory:
            parse_mebibytes(self.pinned_memory, "pinned_memory")

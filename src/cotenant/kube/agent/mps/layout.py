"""Lays out the folders of MPS on a node, and says which control daemon serves which GPUs.

    <slots>/mps/pipes/<daemon>/   the daemon's sockets; containers see them at /run/cotenant/mps/<daemon>
    <slots>/mps/logs/<daemon>/
    <slots>/mps/shm/              /dev/shm of the daemons and of GPU containers

The kubelet stores what is mounted before it is known which container it is for, and which GPU it gets. So all
of it is mounted into each, and the slot of a container that MPS holds has a link `mps` to its daemon's
folder. CUDA_MPS_PIPE_DIRECTORY names that link. Where it is missing CUDA works without MPS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware.enforcers.enforcer import Attachment, Mount
from cotenant.hardware.enforcers.mps import LINK, PIPES_IN_CONTAINER
from cotenant.hardware.mps.place import Place, place_in
from cotenant.kube.agent.mps.settings import MpsSettings
from cotenant.kube.agent.slots.mounting import mount_beside
from cotenant.kube.agent.slots.node_slots import NodeSlot

NODE = "node"
"""The daemon for all GPUs."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- where glibc looks for shared memory


class DaemonPlan(NamedTuple):
    """A control daemon that should run."""

    key: str
    gpus: tuple[GPU, ...]

    def environment(self) -> dict[str, str]:
        """Returns what the daemon is started with besides its place: which GPUs it serves."""
        return {} if self.key == NODE else {"CUDA_VISIBLE_DEVICES": self.key}


class MpsFolders(NamedTuple):
    root: Path
    shared_memory: Path

    def place(self, key: str) -> Place:
        return place_in(self.root, key)

    @property
    def pipes(self) -> Path:
        return self.root / "pipes"

    def make(self) -> None:
        """Creates what is mounted into containers: the container runtime would give it other permissions."""
        self.pipes.mkdir(parents=True, exist_ok=True)
        self.pipes.chmod(0o755)  # whatever the umask is: clients run as any user
        if not self.shared_memory.exists():
            self.shared_memory.mkdir(parents=True)
            self.shared_memory.chmod(0o1777)

    def attachment(self) -> Attachment:
        """Returns what each GPU container is started with. Sockets can be used in a read-only folder."""
        return Attachment(
            (
                Mount(PIPES_IN_CONTAINER, self.pipes),
                Mount(SHARED_MEMORY, self.shared_memory, read_only=False),
            )
        )


def mount_mps(root: Path, size: int, label: str = "") -> None:
    """Mounts a tmpfs for all of it, which containers can fill without harm to slots, and creates the folder
    that the chart mounts into the daemons' container.
    """
    mount_beside(root, size, "mps.size", label)
    MpsFolders(root, root / "shm").make()


def folders_of(settings: MpsSettings, slots: str) -> MpsFolders:
    root = Path(slots) / "mps"
    return MpsFolders(root, Path(settings.shared_memory) if settings.shared_memory else root / "shm")


def plans(daemons: Literal["off", "node", "card"], gpus: Iterable[GPU]) -> list[DaemonPlan]:
    """Lists the daemons for these GPUs."""
    if daemons == "off":
        return []
    if daemons == "node":
        return [DaemonPlan(NODE, tuple(gpus))]
    return [DaemonPlan(gpu.uuid, (gpu,)) for gpu in gpus]


def daemon_for(daemons: Literal["off", "node", "card"], shares: Sequence[Share]) -> str | None:
    """Returns the daemon that holds a container with these shares; None if it asked for no share of compute,
    or has GPUs of several daemons: a process can be a client of one only.
    """
    if daemons == "off" or not shares or all(share.compute is None for share in shares):
        return None
    if daemons == "node":
        return NODE
    return shares[0].uuid if len(shares) == 1 else None


def link(slot: NodeSlot, daemon: str | None) -> None:
    """Points the slot at its daemon, or at none. Containers see the slot read-only."""
    path = slot.folder / LINK
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    if daemon is not None:
        path.symlink_to(PIPES_IN_CONTAINER / daemon)

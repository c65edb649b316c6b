"""Mounts a tmpfs of its own, with a size, for the slots of a node.

Containers write their slot's `usage`, so they can make it grow. On the host's /run, which systemd and the
container runtime need, that could stop the node; on a tmpfs of its own it ends at the size. The chart's
DaemonSet runs this in an init container, before the agent. Slots that are there already keep their place:
running containers have their files mounted, and a tmpfs over them would hide them from the agent.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Literal, NamedTuple

from cotenant.core.errors import CotenantError
from cotenant.core.units import format_bytes
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

Outcome = Literal["mounted", "resized", "in use"]
_NOSUID, _NODEV, _REMOUNT = 2, 4, 32
"""Flags of mount(2). Not noexec: containers load the shim from here."""


class MountedAt(NamedTuple):
    """One line of /proc/self/mountinfo."""

    root: str
    """The folder of its filesystem that is mounted: `/`, or another for a bind mount of a part."""
    point: str
    kind: str


def mount_slots(root: Path, size: int, label: str = "") -> Outcome:
    """Mounts a tmpfs of `size` bytes at the folder; one that is there gets this size. `label` is the SELinux
    context of all files in it.
    """
    try:
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        if has_own_tmpfs(root):
            _mount(root, f"size={size}", _REMOUNT | _NOSUID | _NODEV)
            return "resized"
        if any((root / "slots").glob("*/folder/usage")):
            log.warning(
                "slots keep their place, without a bound: the tmpfs is mounted when the node has none",
                folder=root,
            )
            return "in use"
        options = f"size={size},mode=0755" + (f',context="{label}"' if label else "")
        _mount(root, options, _NOSUID | _NODEV)
    except OSError as error:
        raise CotenantError(
            f"agent.slots: a tmpfs of {format_bytes(size)} cannot be mounted at {root}: {error.strerror}. "
            "With agent.slots_size = 0 slots stay in the host's own folder, which a container can then fill"
        ) from None
    log.info("tmpfs mounted for slots", folder=root, size=format_bytes(size))
    return "mounted"


def mount_beside(folder: Path, size: int, setting: str, label: str = "") -> Outcome:
    """Mounts another tmpfs in the folder of the slots, for what containers may fill without harm to slots.
    One that is there gets this size.
    """
    options = f"size={size}"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if has_own_tmpfs(folder):
            _mount(folder, options, _REMOUNT | _NOSUID | _NODEV)
            return "resized"
        if any(folder.glob("*/*")):  # folders alone may be the kubelet's, for its own mounts
            log.warning("it is in use, without a bound: the tmpfs is mounted at the next boot", folder=folder)
            return "in use"
        _mount(folder, options + ",mode=0755" + (f',context="{label}"' if label else ""), _NOSUID | _NODEV)
    except OSError as error:
        raise CotenantError(
            f"{setting}: a tmpfs of {format_bytes(size)} cannot be mounted at {folder}: {error.strerror}"
        ) from None
    log.info("tmpfs mounted", folder=folder, size=format_bytes(size))
    return "mounted"


def has_own_tmpfs(root: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether the folder is a whole tmpfs, on this host or, seen from a container, on its host."""
    place = os.path.realpath(root)
    mounted = [each for each in _read_mounts(mountinfo.read_bytes()) if each.point == place]
    return bool(mounted) and mounted[-1].kind == "tmpfs" and mounted[-1].root == "/"


def _read_mounts(text: bytes) -> list[MountedAt]:
    found = []
    for line in text.decode(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        found.append(MountedAt(_unescaped(fields[3]), _unescaped(fields[4]), after.split(" ")[0]))
    return found


def _unescaped(path: str) -> str:
    """The kernel writes blanks and backslashes as octal numbers."""
    for code in (r"\040", r"\011", r"\012", r"\134"):
        path = path.replace(code, chr(int(code[1:], 8)))
    return path


def _mount(target: Path, options: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"cotenant", os.fsencode(target), b"tmpfs", ctypes.c_ulong(flags), options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

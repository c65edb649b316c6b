"""Finds the pod and the container of a process by its cgroup.

NVML reports processes by their pid on the host. The kubelet makes a cgroup for each pod, and the container
runtime one for each container below it. A container can make cgroups below its own, but cannot choose the
path above: so only the first match from the root counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_LENGTHS = (8, 4, 4, 4, 12)
_UID, _UID_IN_SLICE = (sign.join(f"[0-9a-f]{{{length}}}" for length in _LENGTHS) for sign in "-_")
_FOLDER = re.compile(f"pod({_UID})")
"""The kubelet's cgroupfs driver: kubepods/burstable/pod<uid>."""
_SLICE = re.compile(rf"(?:[\w.:\\-]+-)?kubepods(?:-burstable|-besteffort)?-pod({_UID_IN_SLICE})\.slice")
"""Its systemd driver: kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice."""
_QOS = frozenset({"burstable", "besteffort"})
_NAMESPACE_PIDS = re.compile(rb"^NSpid:(?:\s+[0-9]+)*\s+([0-9]+)\s*$", re.MULTILINE)
"""The last one is the innermost."""
_OF_USERS = "user.slice"
"""Users may create any cgroup below it."""


class Owner(NamedTuple):
    """The pod, and the container in it, that a process belongs to."""

    uid: str
    """The pod's UID."""
    cgroup: str = ""
    """The name of the container's cgroup, which contains the container ID: `<id>`, `crio-<id>.scope`."""

    def is_container(self, id: str) -> bool:
        """Whether this is the container of this ID."""
        return id in self.cgroup


def owner_of_cgroup(text: str) -> Owner | None:
    """Reads /proc/<pid>/cgroup (v1, v2 or both); None if the process belongs to no pod, or if its cgroups
    contradict each other.
    """
    found: dict[str, Owner] = {}
    for line in text.split("\n"):  # the only character that no cgroup has in its name
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[0].isdecimal() and parts[2].startswith("/"):
            owner = _owner_of_path(parts[2].removesuffix(" (deleted)"))
            if owner is not None:
                found[owner.uid] = max(owner, found.get(owner.uid, owner))
    return next(iter(found.values())) if len(found) == 1 else None


def _owner_of_path(path: str) -> Owner | None:
    """A reader in a cgroup namespace of its own sees others' paths relative to it: `/../../pod<uid>/...`."""
    segments = path.split("/")[1:]
    above = 0
    while above < len(segments) and segments[above] == "..":
        above += 1
    under_kubepods = above > 0
    for at, segment in enumerate(segments[above:], above + 1):
        if segment == _OF_USERS:
            return None
        below = segments[at] if at < len(segments) else ""
        if match := _SLICE.fullmatch(segment):
            return Owner(match[1].replace("_", "-"), below)
        if under_kubepods and (match := _FOLDER.fullmatch(segment)):
            return Owner(match[1], below)
        under_kubepods = segment == "kubepods" or (under_kubepods and segment in _QOS)
    return None


def is_pods_folder(name: str, uid: str) -> bool:
    """Whether a cgroup's folder of this name is the pod's own, in the naming of either of the kubelet's
    drivers.
    """
    match = _SLICE.fullmatch(name)
    return name == f"pod{uid}" or (match is not None and match[1].replace("_", "-") == uid)


def owners_on_node(proc: Path = Path("/proc")) -> frozenset[Owner]:
    """Lists the containers of all pods that have a process on this node, without the reader's own pod. Empty
    where the processes of others are not visible.
    """
    try:
        own = owner_of_cgroup((proc / "self" / "cgroup").read_bytes().decode(errors="replace"))
        pids = [int(name) for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return frozenset()
    found = owners_of_processes(pids, proc).values()
    return frozenset(owner for owner in found if owner is not None and (own is None or owner.uid != own.uid))


def own_pid(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Returns the pid by which a process knows itself, in its own pid namespace; None if it has ended."""
    try:
        status = _read(f"{proc}/{pid}/status")
    except OSError:
        return None
    found = _NAMESPACE_PIDS.search(status)
    return int(found[1]) if found else pid


def _read(path: str) -> bytes:
    """Reads a file of /proc. A node may have hundreds of processes on its GPUs."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def owners_of_processes(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, Owner | None]:
    """By pid; None for a process of no pod. A process that has ended is left out: what it held is free, or
    soon will be.
    """
    found = {}
    for pid in pids:
        try:
            text = _read(f"{proc}/{pid}/cgroup").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            text = ""
        found[pid] = owner_of_cgroup(text)
    return found

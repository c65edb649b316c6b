"""Finds the cgroups of the containers that use a slot.

The kubelet makes a cgroup for each pod, the container runtime one for each container below it. Which slot a
container has is seen in the mounts of its processes: the slot's folder on the host is mounted in it, and in
no other. No name, order or time is matched. Where a program has hidden its mounts, in a mount namespace of
its own, the container's ID shows it, as the kubelet reports it. A program cannot undo it unnoticed: once a
cgroup is known, it stays so while its folder lives, and programs can make cgroups only below it, where the
limit counts as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.hardware.cgroup_folders import ROOT, folders_in, hierarchies, processes_in
from cotenant.kube.agent.cards.cgroups import is_pods_folder

_DEEPEST = 6
"""Levels above a pod's cgroup: the kubelet's root, kubepods, the class of its quality of service, and some to
spare.
"""
_MOST_FOLDERS = 20_000
"""Folders that are searched for a pod."""
_MOST_MOUNTS = 1 << 20
"""Bytes of a process's mounts: it can have made a hundred thousand. The runtime's come first."""


@dataclass
class ContainerCgroups:
    """Remembers where pods are, and which cgroup has which slot. For one thread at a time."""

    root: Path = ROOT
    proc: Path = Path("/proc")
    ids: Mapping[Path, frozenset[str]] = field(default_factory=dict)
    """By slot: the IDs of the containers that have it, as far as the kubelet has reported them."""
    _parents: dict[Path, None] = field(default_factory=dict, init=False)
    """Folders in which a pod's cgroup was found; the latest last."""
    _slots: dict[Path, tuple[int, Path]] = field(default_factory=dict, init=False)
    """By cgroup: its inode, and the slot's folder."""

    def of_slot(self, uid: str, slot: Path) -> list[Path]:
        """Returns the cgroups of the pod's containers that have this slot's folder mounted: one, and after it
        an earlier one that has not ended; none before the container has started.
        """
        for pod in self._pod(uid):
            found = [cgroup for cgroup in folders_in(pod) if self._has_slot(cgroup, slot)]
            if found:
                return found
        return []

    def _pod(self, uid: str) -> Iterator[Path]:
        """Yields the pod's cgroup in each filesystem that has it; most nodes have one."""
        for top in hierarchies(self.root):
            known = next(
                (
                    child
                    for parent in reversed(self._parents)
                    if parent.is_relative_to(top) and (child := _child(parent, uid)) is not None
                ),
                None,
            )
            found = known or self._search(top, uid)
            if found is not None:
                self._parents.pop(found.parent, None)
                self._parents[found.parent] = None
                yield found

    def _search(self, top: Path, uid: str) -> Path | None:
        """Looks level by level: pods are never far below the top."""
        level, seen = [top], 0
        for _ in range(_DEEPEST):
            below: list[Path] = []
            for parent in level:
                for child in folders_in(parent):
                    if is_pods_folder(child.name, uid):
                        return child
                    below.append(child)
                    seen += 1
                if seen > _MOST_FOLDERS:
                    return None
            level = below
        return None

    def _has_slot(self, cgroup: Path, slot: Path) -> bool:
        try:
            inode = cgroup.stat().st_ino
        except OSError:
            self._slots.pop(cgroup, None)
            return False
        known = self._slots.get(cgroup)
        if known is not None and known[0] == inode:
            return known[1] == slot
        named = any(id in cgroup.name for id in self.ids.get(slot, ()))
        if named or any(has_mounted(pid, slot, self.proc) for pid in processes_in(cgroup)):
            self._slots[cgroup] = (inode, slot)
            return True
        return False

    def forget_gone(self) -> None:
        """Forgets cgroups whose folder is gone."""
        self._slots = {cgroup: known for cgroup, known in self._slots.items() if cgroup.is_dir()}


def has_mounted(pid: int, folder: Path, proc: Path = Path("/proc")) -> bool:
    """Whether a process has this folder of a slot mounted, wherever. A folder that was deleted since is
    another.
    """
    try:
        device = folder.stat().st_dev
        with open(proc / str(pid) / "mountinfo", "rb") as file:
            text = file.read(_MOST_MOUNTS)
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    end = os.fsencode(
        "/".join(("", *folder.parts[-3:]))
    )  # /slots/<key>/folder: the filesystem may begin anywhere
    for line in text.split(b"\n"):
        fields = line.split(b" ", 5)
        if len(fields) == 6 and fields[2] == number and fields[3].endswith(end):
            return True
    return False


def _child(parent: Path, uid: str) -> Path | None:
    """Tries the names that a pod's cgroup may have there: that needs no list of a folder with hundreds."""
    names = [f"pod{uid}"]
    if parent.name.endswith(".slice"):
        names.append(f"{parent.name.removesuffix('.slice')}-pod{uid.replace('-', '_')}.slice")
    return next((parent / name for name in names if (parent / name).is_dir()), None)

"""Remembers which container each process on a GPU belongs to: a look at hundreds of them then costs little.

A process is known by its entry in /proc, which the kernel makes anew for another process of the same pid. A
container may move its processes to cgroups below its own, which changes nothing here; all else is read again
once a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cotenant.kube.agent.cards.cgroups import Owner, own_pid, owners_of_processes

_BELIEVED = 60.0
"""Seconds."""


class Owned(NamedTuple):
    owners: dict[int, Owner | None]
    """By pid; None for a process of no pod. One that has ended is left out."""
    own_pids: dict[int, int]
    """By pid, for processes of pods: the pid by which each knows itself."""


class _Known(NamedTuple):
    entry: tuple[int, int]
    read: float
    owner: Owner | None
    own_pid: int | None


@dataclass
class ProcessOwners:
    """`of()` is called by one thread at a time."""

    proc: Path = Path("/proc")
    clock: Callable[[], float] = time.monotonic
    _known: dict[int, _Known] = field(default_factory=dict, init=False)

    def of(self, pids: Iterable[int]) -> Owned:
        """Finds the owners of these processes, and forgets all others."""
        now, proc = self.clock(), str(self.proc)
        found: dict[int, _Known] = {}
        for pid in pids:
            known = self._find(pid, f"{proc}/{pid}", now)
            if known is not None:
                found[pid] = known
        self._known = found
        return Owned(
            {pid: each.owner for pid, each in found.items()},
            {
                pid: each.own_pid
                for pid, each in found.items()
                if each.owner is not None and each.own_pid is not None
            },
        )

    def _find(self, pid: int, path: str, now: float) -> _Known | None:
        try:
            seen = os.stat(path)
        except OSError:
            return None  # it has ended
        entry = seen.st_ino, seen.st_ctime_ns
        known = self._known.get(pid)
        if known is not None and known.entry == entry and now - known.read < _BELIEVED:
            return known
        owners = owners_of_processes((pid,), self.proc)
        if pid not in owners:
            return None
        owner = owners[pid]
        return _Known(entry, now, owner, None if owner is None else own_pid(pid, self.proc))

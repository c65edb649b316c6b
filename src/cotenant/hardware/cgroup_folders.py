"""Finds the cgroup filesystems of this machine, and makes a cgroup to try things on.

The driver takes a cgroup by its folder. Under cgroup v2 there is one filesystem; a machine with v1 has one
for each controller, and often a v2 beside them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PROCESSES = "cgroup.procs"
_V1 = ("unified", "memory", "devices", "pids", "systemd")
"""Folders below the root where it is not cgroup v2 itself; the first is the v2 beside them."""
_SCRATCH = "cotenant-probe-"
_DEEPEST, _MOST_SEARCHED = 8, 20_000
"""Levels, and folders of a level, that are searched for a process."""
_MOST_FOLDERS = 256
"""Cgroups below one that are looked into: its programs may make any number of them."""


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Lists the folders of cgroup filesystems, the one that suits best first; empty if none is mounted."""
    if (root / _PROCESSES).exists():
        return [root]
    return [root / name for name in _V1 if (root / name / _PROCESSES).exists()]


@contextlib.contextmanager
def scratch(root: Path = ROOT) -> Iterator[Path]:
    """Yields a cgroup to try a limit on: a new one without processes, or where none may be made, as in a
    container, this process's own. OSError if there is none. What a process that was killed left behind is
    removed, too.
    """
    every = hierarchies(root)
    if not every:
        raise FileNotFoundError(f"no cgroup filesystem is mounted at {root}")
    for left in every[0].glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            left.rmdir()
    folder = every[0] / f"{_SCRATCH}{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        own = own_cgroup(every[0])
        if own is None:
            raise OSError(
                error.errno, f"{error.strerror}, and this process's own is not found", str(folder)
            ) from None
        yield own
        return
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def own_cgroup(top: Path, proc: Path = Path("/proc"), of: int | None = None) -> Path | None:
    """Finds this process's cgroup in a hierarchy. In a cgroup namespace its path is not told: then it is
    searched for by the pid. None if it is the top itself, or is not to be seen.
    """
    pid = str(of or os.getpid()).encode()
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        names = controllers.removeprefix("name=").split(",") if controllers else ["", "unified"]
        if (top.name in names or "" in names) and path not in ("", "/") and _has(top / path[1:], pid):
            return top / path[1:]
    level = [top]
    for _ in range(_DEEPEST):
        level = [each for parent in level for each in folders_in(parent)][:_MOST_SEARCHED]
        found = next((each for each in level if _has(each, pid)), None)
        if found is not None:
            return found
    return None


def _has(folder: Path, pid: bytes) -> bool:
    try:
        return pid in (folder / _PROCESSES).read_bytes().split()
    except OSError:
        return False


def folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return [Path(each.path) for each in found if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def processes_in(folder: Path, most: int = 64) -> Iterator[int]:
    """Yields pids of processes in a cgroup and in those below it, at most this many: its programs may make
    cgroups of their own. Nothing if it is gone.
    """
    count, looked, pending = 0, 0, [folder]
    while pending and count < most and looked < _MOST_FOLDERS:
        at, looked = pending.pop(0), looked + 1
        try:
            pids = (at / _PROCESSES).read_bytes().split()
            with os.scandir(at) as found:
                pending += [Path(each.path) for each in found if each.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for pid in pids[: most - count]:
            count += 1
            yield int(pid)

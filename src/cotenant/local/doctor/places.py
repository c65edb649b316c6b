"""Looks at the files and folders of local mode: their permissions, their file system, and who locks them."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from pathlib import Path
from typing import NamedTuple

from cotenant.local import processes
from cotenant.local.home import Home

LOCK_PATIENCE = 2.0
"""Seconds for which one process must hold the lock to be reported."""
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the kernel writes blanks in the names of mount points."""


class PathAccess(NamedTuple):
    """A file or folder that local mode writes."""

    path: Path
    mode: int
    wanted: int
    """As it should be."""
    owner: int
    writable: bool
    """By the user who runs this."""


def access(home: Home) -> list[PathAccess]:
    beside = [Path(f"{home.ledger}{suffix}") for suffix in ("", "-wal", "-shm")]
    found = []
    for path in (home.folder, *beside, home.lock, home.runtime, home.slots):
        try:
            status = path.stat()
        except OSError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        may = os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0))
        found.append(PathAccess(path, mode, wanted_mode(home, path, mode), status.st_uid, may))
    return found


def wanted_mode(home: Home, path: Path, mode: int) -> int:
    """In a home that users share everybody may write; elsewhere only the owner."""
    if not home.shared:
        return mode & ~0o022
    return mode | (0o777 if path.is_dir() else 0o666)


def filesystem_of(path: Path) -> str:
    """The type of the file system of a path, as in /proc/self/mountinfo."""
    path, best, kind = Path(os.path.realpath(path)), -1, "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            left, right = line.split(" - ", 1)
            at = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), left.split()[4]))
            if len(at.parts) >= best and path.is_relative_to(at):
                best, kind = len(at.parts), right.split()[0]
    return kind


def lock_holder(path: Path, patience: float) -> str | None:
    """The process that held the lock all the time; None if the lock is free, or several processes held it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        seen: set[int] = set()
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen |= _holders(os.fstat(fd).st_ino)
                time.sleep(0.02)
            else:
                return None
    finally:
        os.close(fd)
    if len(seen) > 1:
        return None
    pid = next(iter(seen), None)
    return "a process that cannot be seen from here" if pid is None else f"pid {pid} ({processes.title(pid)})"


def _holders(inode: int) -> set[int]:
    held = set()
    with open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                held.add(int(fields[4]))
    return held

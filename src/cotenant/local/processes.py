"""Identifies processes by PID, start time and boot: the kernel reuses a PID alone."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, NamedTuple


class Stat(NamedTuple):
    """What /proc/PID/stat says; `start` is in clock ticks since boot."""

    state: str
    parent: int
    threads: int
    start: int

    @property
    def ended(self) -> bool:
        """Whether it has ended. A zombie with more threads has not: they may still use the GPU."""
        return self.state in "XxZ" and self.threads <= 1


class Process(NamedTuple):
    pid: int
    start: int
    boot: str

    def alive(self) -> bool:
        found = stat(self.pid)
        return found is not None and found.start == self.start and not found.ended and self.boot == boot_id()

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "start": self.start, "boot": self.boot}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Process:
        return cls(data["pid"], data["start"], data["boot"])


def identify(pid: int) -> Process:
    """Identifies the process with this PID; it must not be reaped meanwhile: oneself or one's child."""
    found = stat(pid)
    if found is None:
        raise ProcessLookupError(f"no process {pid}")
    return Process(pid, found.start, boot_id())


def stat(pid: int) -> Stat | None:
    """Reads /proc/PID/stat; None if there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    fields = data[data.rindex(b")") + 2 :].split()  # the name before it may hold blanks and brackets
    return Stat(fields[0].decode(), int(fields[1]), int(fields[17]), int(fields[19]))


def ancestors(pid: int) -> list[int]:
    """Lists the PID, its parent and so on, without PID 1."""
    line: list[int] = []
    while pid > 1 and pid not in line:
        found = stat(pid)
        if found is None:
            break
        line.append(pid)
        pid = found.parent
    return line


def descendants(pid: int) -> list[int]:
    """Lists all processes that descend from this one now."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := stat(int(name))) is not None:
            children.setdefault(found.parent, []).append(int(name))
    below: list[int] = []
    queue = [pid]
    while queue:
        found_children = children.get(queue.pop(), [])
        below += found_children
        queue += found_children
    return below


def mapping(path: str) -> list[int]:
    """Lists the processes that have the file mapped."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and maps(int(name), path)]


def maps(pid: int, path: str) -> bool:
    """Whether the process has the file mapped, by /proc: what it writes about itself could be forged. By
    inode, since a container sees the file under another path. False for a process of another user.
    """
    try:
        file = os.stat(path)
        mark = f" {os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x} {file.st_ino} ".encode()
        with open(f"/proc/{pid}/maps", "rb") as lines:
            return any(mark in line for line in lines)
    except OSError:
        return False


def own_pid(pid: int) -> int:
    """Returns the PID by which the process knows itself: another one if it is in a container."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"NSpid:"):
                    return int(line.split()[-1])
    except (OSError, ValueError, IndexError):
        pass
    return pid


@functools.cache
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def user(pid: int) -> str:
    """Returns the name of the process's user, or the number if there is no name; empty if it has ended."""
    import pwd

    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            uid = next(int(line.split()[1]) for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def title(pid: int) -> str:
    """Reads the command line; empty if it is not accessible."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(512).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""

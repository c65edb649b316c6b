"""Memory of a card that no grant covers: no new grant may count on it.

NVML tells processes by their pid on the host, and the kernel tells a process's pod by its cgroup: a container
cannot choose the path above its own. What a pod's processes hold up to its grant is covered; all else that is
in use is outside: processes of no pod, of pods without a grant, and what a pod holds beyond its grant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from cotenant.hardware.nvml import CardReading

STEP = 16 << 20
"""What is told is rounded up to it, so that it does not change for nothing."""
NOISE = 64 << 20
"""Drivers report a few MiB in use on a card that nobody uses: it may still be granted whole."""

_LENGTHS = (8, 4, 4, 4, 12)
_UID, _UID_IN_SLICE = (sign.join(f"[0-9a-f]{{{length}}}" for length in _LENGTHS) for sign in "-_")
_FOLDER = re.compile(f"pod({_UID})")
"""The kubelet's cgroupfs driver: kubepods/burstable/pod<uid>."""
_SLICE = re.compile(rf"(?:[\w.:\\-]+-)?kubepods(?:-burstable|-besteffort)?-pod({_UID_IN_SLICE})\.slice")
"""Its systemd driver: kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice."""
_QOS = frozenset({"burstable", "besteffort"})
_OF_USERS = "user.slice"
"""Under it people make what cgroups they like."""


def pod_of_cgroup(text: str) -> str | None:
    """The UID of the pod that a process belongs to, by its /proc/<pid>/cgroup (v1, v2 or both); None if it is
    no pod's, or if its cgroups contradict each other.
    """
    found = set()
    for line in text.split("\n"):  # the only character that no cgroup has in its name
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[0].isdecimal() and parts[2].startswith("/"):
            found.add(_pod_of_path(parts[2].removesuffix(" (deleted)")))
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _pod_of_path(path: str) -> str | None:
    """The first that matches: whatever is below, a container may have made itself. A reader in a cgroup
    namespace of its own sees the others' paths from where it stands: `/../../pod<uid>/...`.
    """
    segments = path.split("/")[1:]
    above = 0
    while above < len(segments) and segments[above] == "..":
        above += 1
    under_kubepods = above > 0
    for segment in segments[above:]:
        if segment == _OF_USERS:
            return None
        if match := _SLICE.fullmatch(segment):
            return match[1].replace("_", "-")
        if under_kubepods and (match := _FOLDER.fullmatch(segment)):
            return match[1]
        under_kubepods = segment == "kubepods" or (under_kubepods and segment in _QOS)
    return None


def pods_of_processes(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, str | None]:
    """By pid; one that has ended is left out: what it held is free, or soon will be."""
    found = {}
    for pid in pids:
        try:
            text = (proc / str(pid) / "cgroup").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            text = ""
        found[pid] = pod_of_cgroup(text)
    return found


class Outside(NamedTuple):
    bytes: int
    """To be told."""
    unexplained: int
    """Bytes in use that no process answers for. While somebody allocates they appear for a moment, so they
    count only if the survey before saw them too.
    """


def outside_of(
    card: CardReading,
    pods: Mapping[int, str | None],
    granted: Mapping[str, int],
    counted: Mapping[str, int],
    before: int | None,
) -> Outside:
    """`pods` by pid; `granted` bytes on this card and `counted` bytes of the slots' usage by pod UID;
    `before` what was unexplained at the last survey, None at the first.
    """
    if not all(process.bytes is not None for process in card.processes):
        return _by_slots(card, granted, counted)
    held: dict[str | None, int] = {}
    for process in card.processes:
        if process.pid in pods:
            uid = pods[process.pid]
            held[uid] = held.get(uid, 0) + (process.bytes or 0)
    covered = sum(min(size, granted.get(uid or "", 0)) for uid, size in held.items())
    answered = sum(process.bytes or 0 for process in card.processes)
    strange = sum(held.values()) - covered
    unexplained = max(0, card.used - answered)
    counts = unexplained if before is None else min(unexplained, before)
    if counts <= NOISE and not granted and not strange:
        counts = 0
    return Outside(_rounded(strange + counts), unexplained)


def _by_slots(card: CardReading, granted: Mapping[str, int], counted: Mapping[str, int]) -> Outside:
    """Where the driver does not tell what a process holds (some virtual machines): the shim does."""
    covered = sum(min(size, granted.get(uid, 0)) for uid, size in counted.items())
    return Outside(_rounded(max(0, card.used - covered)), 0)


def _rounded(size: int) -> int:
    return -(-size // STEP) * STEP

"""Who holds the memory of each card: the grants, or processes outside them.

NVML tells per process what is in use. What grants do not explain is outside: memory of other processes,
memory that NVML charges to nobody, and what a grant's own processes hold beyond it (in observe and warn).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cotenant.hardware.nvml import CardProcess, CardReading
from cotenant.hardware.slots import ProcessUsage, Usage
from cotenant.local.job import Job

NOISE = 64 << 20
"""Drivers report a few MiB in use on a card that nobody uses: it may still be granted whole."""


class CardAccount(NamedTuple):
    used: Mapping[str, int]
    """Bytes by id of job."""
    outside: int
    strangers: tuple[CardProcess, ...]
    """Processes that belong to no grant."""
    unseen: frozenset[str]
    """Jobs with a process on the card that has no entry in their slot: the shim is not in it."""
    unexplained: int
    """The part of `outside` that no process answers for. It is high for a moment when somebody allocates
    meanwhile.
    """


def account(
    reading: CardReading,
    jobs: Sequence[Job],
    usages: Mapping[str, Usage],
    job_of: Callable[[int], str | None],
) -> CardAccount:
    uuid = reading.gpu.uuid
    owners = {process.pid: job_of(process.pid) for process in reading.processes}
    used: dict[str, int] = {}
    told: set[int] = set()
    unseen: set[str] = set()
    for process in reading.processes:
        owner = owners[process.pid]
        if owner is None or process.bytes is None:
            continue
        used[owner] = used.get(owner, 0) + process.bytes
        told.add(process.pid)
        if not any(entry.pid == process.pid for entry in _entries(usages.get(owner))):
            unseen.add(owner)
    granted: dict[str, int] = {}
    for job in jobs:
        for at, share in enumerate(job.shares):
            if share.uuid == uuid:
                granted[job.id] = share.memory
                counted = sum(e.used[at] for e in _entries(usages.get(job.id)) if e.pid not in told)
                if counted:  # NVML did not tell, or calls the process by another number than it calls itself
                    used[job.id] = used.get(job.id, 0) + counted
    explained = sum(min(size, granted.get(id, 0)) for id, size in used.items())
    strangers = tuple(process for process in reading.processes if owners[process.pid] is None)
    answered = sum(process.bytes or 0 for process in strangers)
    answered += sum(max(0, size - granted.get(id, 0)) for id, size in used.items())
    outside = max(reading.used - explained, answered)
    if not granted and not strangers and outside <= NOISE:
        outside = 0
    return CardAccount(used, outside, strangers, frozenset(unseen), max(0, outside - answered))


def _entries(usage: Usage | None) -> Sequence[ProcessUsage]:
    return usage.processes if usage is not None else ()

"""Accounts for the memory of this machine's GPUs by job: whose a process is, and what its slot counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cotenant.hardware import accounting
from cotenant.hardware.accounting import GpuAccount
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import ProcessUsage, Usage
from cotenant.local.job import Job


def account(
    reading: CardReading,
    jobs: Sequence[Job],
    usages: Mapping[str, Usage],
    job_of: Callable[[int], str | None],
    own_pid: Callable[[int], int] = int,
) -> GpuAccount:
    """Returns memory by job id. A process that cannot be found counts as one without a grant: in a container,
    other processes of the machine are hidden from this program and yet hold memory. `own_pid` gives the PID
    by which a process knows itself in its slot.
    """
    uuid = reading.gpu.uuid
    owners = {process.pid: job_of(process.pid) for process in reading.processes}
    reported = {
        (owners[process.pid], own_pid(process.pid))
        for process in reading.processes
        if owners[process.pid] and process.bytes is not None
    }
    granted: dict[str, int] = {}
    counted: dict[str, int] = {}
    for job in jobs:
        for at, share in enumerate(job.shares):
            if share.uuid == uuid:
                granted[job.id] = share.memory
                # The driver reports no figure, or knows the process by another pid than it knows itself.
                entries = (e for e in _entries(usages.get(job.id)) if (job.id, e.pid) not in reported)
                counted[job.id] = sum(entry.used[at] for entry in entries)
    return accounting.account(reading, owners, granted, counted)


def unlimited(
    reading: CardReading,
    usages: Mapping[str, Usage],
    job_of: Callable[[int], str | None],
    own_pid: Callable[[int], int] = int,
) -> frozenset[str]:
    """Finds jobs with a process on the GPU that has no entry in their slot: the shim is not loaded in it."""
    return frozenset(
        owner
        for process in reading.processes
        if process.bytes is not None
        and (owner := job_of(process.pid)) is not None
        and all(entry.pid != own_pid(process.pid) for entry in _entries(usages.get(owner)))
    )


def _entries(usage: Usage | None) -> Sequence[ProcessUsage]:
    return usage.processes if usage is not None else ()

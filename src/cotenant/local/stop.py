"""Terminates a job: its command, the command's descendants, and every process in its slot."""

from __future__ import annotations

import os
import signal
import time

from cotenant.core.errors import CotenantError
from cotenant.hardware import slots
from cotenant.local import line, processes, reap
from cotenant.local.find import by_name
from cotenant.local.job import Job
from cotenant.local.machine import Machine

LOOKS = 0.05
AFTER_KILL = 10.0


class NotStopped(CotenantError):
    """Its processes could not be signalled, or do not exit."""


def stop(machine: Machine, name: str, timeout: float) -> tuple[Job, bool]:
    """Sends SIGTERM and, after the timeout, SIGKILL; returns the job, and whether it had to be killed."""
    line.release_ended(machine)
    job = by_name(machine.store.jobs(), name)
    killed = False
    _signal(job, signal.SIGTERM)
    if not _ended(machine, job, timeout):
        killed = True
        if not _killed(machine, job):
            raise NotStopped(
                f"{name} was killed but does not exit: see `cotenant ps`, and dmesg for its driver"
            )
    line.release_ended(machine)
    return job, killed


def _killed(machine: Machine, job: Job) -> bool:
    """Sends SIGKILL repeatedly, since a process may start while others are killed; False if some are left."""
    end = time.monotonic() + AFTER_KILL
    while time.monotonic() < end:
        _signal(job, signal.SIGKILL)
        if _ended(machine, job, LOOKS * 4):
            return True
    return False


def _ended(machine: Machine, job: Job, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        found = machine.store.find(job.id)
        if found is None or not reap.is_alive(found):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(LOOKS)


def _signal(job: Job, number: int) -> None:
    pids = {job.process.pid} if job.process.alive() else set[int]()
    pids |= {below for pid in pids for below in processes.descendants(pid)}
    if job.shares:
        pids |= set(_in_slot(job))
    for pid in pids - {os.getpid()}:
        _send(pid, number, job)


def _in_slot(job: Job) -> list[int]:
    """Lists the PIDs in the slot. Processes write them themselves, so only those that map the slot count."""
    try:
        entries = slots.read_usage(job.slot).processes
    except slots.SlotUnusable:
        return []
    path = str(job.slot / "usage")
    return [entry.pid for entry in entries if processes.maps_file(entry.pid, path)]


def _send(pid: int, number: int, job: Job) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise NotStopped(f"{job.name} belongs to {job.user}: only they or root can stop it") from None
    finally:
        os.close(handle)

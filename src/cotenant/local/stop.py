"""Terminates a job: its command, the command's descendants, and every process in its slot.

It needs no free disk: on a full one the ledger cannot be written, and it is just then that a job has to end.
What has ended is released by the next `cotenant` that can write.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from cotenant.core.errors import CotenantError, LedgerUnusable
from cotenant.local import line, ownership, processes, reap, slot_folder
from cotenant.local.find import by_name
from cotenant.local.job import Job, Stopping
from cotenant.local.machine import Machine, now

LOOKS = 0.05
AFTER_KILL = 10.0


class NotStopped(CotenantError):
    """Its processes could not be signalled, or do not exit."""


class Stopped(NamedTuple):
    job: Job
    killed: bool
    """Whether SIGTERM was not enough."""
    unreleased: LedgerUnusable | None
    """Why its room could not be released in the ledger."""


def stop(machine: Machine, name: str, timeout: float) -> Stopped:
    """Sends SIGTERM and, after the timeout, SIGKILL."""
    with contextlib.suppress(LedgerUnusable):
        line.release_ended(machine)
    job = by_name(_jobs(machine), name)
    ownership.check(job, "stop")
    killed = False
    send_signal(job, signal.SIGTERM)
    if not _ended(machine, job, timeout):
        killed = True
        refused = _killed(machine, job)
        if refused is not None:
            raise NotStopped(_why_not(name, refused))
    try:
        line.release_ended(machine)
    except LedgerUnusable as error:
        return Stopped(job, killed, error)
    return Stopped(job, killed, None)


def begin(
    machine: Machine, id: str, grace: float, reason: str, *, unless: Callable[[Job], bool] = lambda _: False
) -> Job | None:
    """Begins to stop a job without waiting for its end: records it, then sends SIGTERM. None, and nothing is
    done, if it has ended, is being stopped already, or `unless` holds under the ledger's lock.
    """
    with machine.store.change() as books:
        job = books.jobs.get(id)
        if job is None or job.stopping is not None or unless(job):
            return None
        job = replace(job, stopping=Stopping(now(), grace, reason))
        books.jobs[id] = job
    send_signal(job, signal.SIGTERM)
    return job


def go_on(job: Job) -> None:
    """Sends SIGKILL to a job that is being stopped, once its grace period is over."""
    if job.stopping is not None and now() - job.stopping.since >= job.stopping.grace:
        send_signal(job, signal.SIGKILL)


def _jobs(machine: Machine) -> list[Job]:
    """Lists the jobs. Where the ledger cannot even be read, those that run are in the records of their
    slots, on tmpfs.
    """
    try:
        return machine.store.jobs()
    except LedgerUnusable:
        folders = slot_folder.find_strays(machine.home, set())
        found = [job for folder in folders if (job := slot_folder.read(folder)) and reap.is_alive(job)]
        if not found:
            raise
        return found


def _why_not(name: str, refused: set[int]) -> str:
    if not refused:
        return f"{name} was killed but does not exit: see `cotenant ps`, and dmesg for its driver"
    which = ", ".join(f"{pid} ({processes.title(pid)[:60]})" for pid in sorted(refused))
    return f"{name} has processes of another user, which only root can stop: {which}. Use sudo"


def _killed(machine: Machine, job: Job) -> set[int] | None:
    """Sends SIGKILL repeatedly, since a process may start while others are killed.

    Returns None once all have ended, else the PIDs that this user may not signal.
    """
    refused = set[int]()
    end = time.monotonic() + AFTER_KILL
    while time.monotonic() < end:
        refused = send_signal(job, signal.SIGKILL)
        if _ended(machine, job, LOOKS * 4):
            return None
        if refused:
            break
    return refused


def _ended(machine: Machine, job: Job, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        found: Job | None = job
        with contextlib.suppress(LedgerUnusable):
            found = machine.store.find(job.id)
        if found is None or not reap.is_alive(found):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(LOOKS)


def send_signal(job: Job, number: int) -> set[int]:
    """Signals every process of the job; returns the PIDs that this user may not signal."""
    pids = {job.process.pid} if job.process.alive() else set[int]()
    pids |= {below for pid in pids for below in processes.descendants(pid)}
    if job.shares:
        pids |= set(processes.mapping(str(job.slot / "usage")))
    return {pid for pid in pids - {os.getpid()} if not _send(pid, number)}


def _send(pid: int, number: int) -> bool:
    """Returns False if this user may not signal the process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(handle)
    return True

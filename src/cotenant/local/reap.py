"""Releases the grants of commands that have ended. Each `cotenant` does it first, so no daemon is needed.

A grant lasts while the process recorded for it is alive or any process uses its slot. A slot in use without a
row in the ledger (the ledger was lost) is charged again. What ended is kept for `cotenant history` in the
same commit.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from cotenant.hardware import slots
from cotenant.local import slot_folder
from cotenant.local.ended import end_of
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.store import Books


def is_alive(job: Job) -> bool:
    """Whether the job still needs its grant; changes nothing."""
    return job.process.alive() or (bool(job.shares) and slots.is_held(job.slot))


def reap(books: Books, machine: Machine) -> list[Path]:
    """Drops the jobs that have ended. Returns the folders to delete once that is committed."""
    ended = []
    for job in list(books.jobs.values()):
        if not job.process.alive() and (not job.shares or _tear_down(machine, job.slot)):
            if job.started:
                books.keep_ended(end_of(job, now(), time.time()))
            del books.jobs[job.id]
            ended.append(job.slot)
    for folder in slot_folder.find_strays(machine.home, {slot.name for slot in ended} | books.jobs.keys()):
        stray = slot_folder.read(folder)
        if (stray is None or not stray.process.alive()) and _tear_down(machine, folder):
            if stray is not None and stray.started:
                books.keep_ended(end_of(stray, now(), time.time()))
            ended.append(folder)
        elif stray is not None:
            books.jobs[stray.id] = _unnamed(stray, books)
    return ended


def _tear_down(machine: Machine, slot: Path) -> bool:
    try:
        return machine.shim.tear_down(slot)
    except OSError:
        return False  # it cannot be seen whether it is in use: the room stays charged


def _unnamed(job: Job, books: Books) -> Job:
    """Avoids names in use: one may have been taken while the ledger was lost; an id never is."""
    taken = any(other.name == job.name for other in books.jobs.values())
    return replace(job, name=f"{job.name}-{job.id}") if taken else job

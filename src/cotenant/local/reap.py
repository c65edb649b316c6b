"""Ending what has ended: whoever opens the ledger next does it, so no daemon is needed.

A grant lives while the process recorded for it lives or anybody holds a lock on its slot. A slot that lives
without a row (the ledger was lost) is charged again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cotenant.hardware import slots
from cotenant.local import slot_folder
from cotenant.local.home import Home
from cotenant.local.job import Job
from cotenant.local.store import Books


def is_alive(job: Job) -> bool:
    """Looks, and ends nothing."""
    return job.process.alive() or (bool(job.shares) and slots.is_held(job.slot))


def reap(books: Books, home: Home) -> list[Path]:
    """Drop the jobs that have ended; the folders returned are to be removed once that is committed."""
    ended = []
    for job in list(books.jobs.values()):
        if not job.process.alive() and (not job.shares or _close(job.slot)):
            del books.jobs[job.id]
            ended.append(job.slot)
    for folder in slot_folder.find_strays(home, {slot.name for slot in ended} | books.jobs.keys()):
        stray = slot_folder.read(folder)
        if (stray is None or not stray.process.alive()) and _close(folder):
            ended.append(folder)
        elif stray is not None:
            books.jobs[stray.id] = _unnamed(stray, books)
    return ended


def _close(folder: Path) -> bool:
    try:
        return slots.close(folder)
    except OSError:
        return False  # nobody can tell, so the room stays charged


def _unnamed(job: Job, books: Books) -> Job:
    """A name may have been taken while the ledger was lost; the id never is."""
    taken = any(other.name == job.name for other in books.jobs.values())
    return replace(job, name=f"{job.name}-{job.id}") if taken else job

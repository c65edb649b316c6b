"""Changes the ledger and serves the line, in one pass that every change goes through.

Load, remove what has ended, read the GPUs, serve the line, write, commit; then wake the jobs that were
admitted. The process that frees room makes this pass for everybody in line, so a waiting job starts the
moment there is room, without polling.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Ledger
from cotenant.core.line import Served, order, serve
from cotenant.core.placement import impossible, typical_of, why_not
from cotenant.core.refusal import Refusal
from cotenant.hardware import slots
from cotenant.hardware.accounting import NOISE, GpuAccount
from cotenant.hardware.nvml import CardReading, NoDriver, with_known
from cotenant.local import reap, slot_folder
from cotenant.local.account import account, unlimited
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.names import unique
from cotenant.local.processes import ancestors
from cotenant.local.store import Books


class GpuReadings(NamedTuple):
    """The GPUs and who holds what on them, at one moment."""

    readings: tuple[CardReading, ...]
    accounts: Mapping[str, GpuAccount]
    """By UUID."""
    usages: Mapping[str, slots.Usage]
    """By id of job."""
    unlimited: Mapping[str, frozenset[str]]
    """Ids of jobs with a process that the shim does not limit, by the GPU's UUID."""

    @property
    def outside(self) -> dict[str, int]:
        return {uuid: card.outside for uuid, card in self.accounts.items()}

    def ledger(self, jobs: list[Job]) -> Ledger:
        return Ledger((r.gpu for r in self.readings), self.outside, (job.grant for job in jobs if job.shares))


class Joined(NamedTuple):
    """The state of a job that has joined the line: granted if it has shares, else why it waits."""

    job: Job
    refusal: Refusal | None
    place: int


def read_gpus(machine: Machine, jobs: list[Job], known: Mapping[str, GPU]) -> GpuReadings:
    """Reads the GPUs after the rows. If memory is in use that no process answers for, it looks again: one may
    have allocated between two readings, and the lesser value is the true one.
    """
    granted = [job for job in jobs if job.shares]
    sight = _read_gpus(machine, granted, known)
    if any(card.unexplained > NOISE for card in sight.accounts.values()):
        again = _read_gpus(machine, granted, known)
        accounts = {
            uuid: card.confirmed(sight.accounts.get(uuid, card).unexplained)
            for uuid, card in again.accounts.items()
        }
        sight = again._replace(accounts=accounts)
    return sight


def release_ended(machine: Machine) -> None:
    """Removes jobs that have ended, and gives their room to those who wait for it."""
    with machine.store.change() as books:
        ended = reap.reap(books, machine)
        admitted = _grant_if_seen(machine, books)
    _afterwards(admitted, ended)


def join(machine: Machine, job: Job, *, wait: bool, rename: bool) -> Joined:
    """Adds a job to the line, and grants its demand at once if there is room. Without `wait` it keeps no
    place.

    If its name is in use, it gets a number behind it, if it may be renamed.
    """
    with machine.store.change() as books:
        ended = reap.reap(books, machine)
        taken = {other.name for other in books.jobs.values()}
        if job.name in taken and not rename:
            raise BadInput(
                f"name: {job.name} is taken by a running or waiting command: take another (see `cotenant ps`)"
            )
        job = replace(job, name=unique(job.name, taken))
        books.jobs[job.id] = job
        sight = read_gpus(machine, list(books.jobs.values()), books.cards())
        job = replace(job, demand=job.demand.with_uuids_of(reading.gpu for reading in sight.readings))
        books.jobs[job.id] = job
        never = impossible(sight.ledger(books.granted), job.demand)
        if never is not None:
            raise BadInput(str(never))
        admitted, joined = _serve(machine, books, job.id, sight)
        if not joined.job.shares and not wait:
            del books.jobs[job.id]
    _afterwards([other for other in admitted if other.id != job.id], ended)
    return joined


def ask_again(machine: Machine, id: str) -> Joined | None:
    """Serves the line and returns the state of the job; None if it is no longer there."""
    with machine.store.change() as books:
        ended = reap.reap(books, machine)
        job = books.jobs.get(id)
        admitted: list[Job] = []
        joined = None
        if job is not None and job.shares:
            joined = Joined(job, None, 0)
        elif job is not None:
            admitted, joined = _serve(machine, books, id)
    _afterwards([other for other in admitted if other.id != id], ended)
    return joined


def withdraw(machine: Machine, id: str) -> None:
    """Removes a job from the line, or releases a grant with which nothing was started."""
    with machine.store.change() as books:
        job = books.jobs.get(id)
        ended = []
        if job is not None and (not job.shares or machine.shim.tear_down(job.slot)):
            ended.append(books.jobs.pop(id).slot)
        ended += reap.reap(books, machine)
        admitted = _grant_if_seen(machine, books)
    _afterwards(admitted, ended)


def record(machine: Machine, job: Job) -> None:
    """Records the process that stands for the job from now on."""
    with machine.store.change() as books:
        books.jobs[job.id] = job


def places(jobs: list[Job]) -> dict[str, int]:
    """The place in line of each waiting job, by id."""
    line = order(job.waiting for job in jobs if not job.shares)
    return {waiting.id: place for place, waiting in enumerate(line, start=1)}


def _grant(machine: Machine, books: Books, sight: GpuReadings | None = None) -> tuple[list[Job], Served]:
    """Serves the line; those admitted are charged in the books."""
    if sight is None:
        sight = read_gpus(machine, list(books.jobs.values()), books.cards())
    books.know_cards({reading.gpu.uuid: replace(reading.gpu, healthy=True) for reading in sight.readings})
    line, time = [job.waiting for job in books.waiting], now()
    served = serve(sight.ledger(books.granted), line, time, machine.patience, typical_of(books.history()))
    admitted = []
    for grant in served.admitted:
        job = replace(books.jobs[grant.id], shares=grant.shares, held=(), granted=time)
        books.jobs[grant.id] = job
        books.remember(job.demand)
        admitted.append(job)
    for job in books.waiting:
        held = served.held.get(job.id, ())
        if held != job.held:
            books.jobs[job.id] = replace(job, held=held)
    return admitted, served


def _grant_if_seen(machine: Machine, books: Books) -> list[Job]:
    """Serves the line when room is released, which must succeed even if the GPUs cannot be read now."""
    if not books.waiting:
        return []
    try:
        return _grant(machine, books)[0]
    except NoDriver:
        return []


def _serve(
    machine: Machine, books: Books, asking: str, sight: GpuReadings | None = None
) -> tuple[list[Job], Joined]:
    """Serves the line, and returns the state of one job in it."""
    admitted, served = _grant(machine, books, sight)
    job, refusal, place = books.jobs[asking], None, 0
    if not job.shares:
        names = {uuid: books.jobs[id].name for uuid, id in served.held_for(asking).items()}
        refusal = why_not(served.ledger, job.demand, names)
        place = places(list(books.jobs.values()))[asking]
    return admitted, Joined(job, refusal, place)


def _read_gpus(machine: Machine, granted: list[Job], known: Mapping[str, GPU]) -> GpuReadings:
    usages = {}
    for job in granted:
        try:
            usages[job.id] = slots.read_usage(job.slot)
        except slots.SlotUnusable:
            continue  # not made yet, or damaged: NVML still reports it
    in_use = {share.uuid for job in granted for share in job.shares}
    readings = with_known(machine.cards.read(), known, in_use)
    by_pid = {job.process.pid: job.id for job in granted if job.process.alive()}
    by_entry = {entry.pid: id for id, usage in usages.items() for entry in usage.processes}

    @functools.cache  # each process is asked for more than once, and /proc is slow
    def job_of(pid: int) -> str | None:
        above = next((by_pid[above] for above in ancestors(pid) if above in by_pid), None)
        return above or by_entry.get(pid)

    accounts = {reading.gpu.uuid: account(reading, granted, usages, job_of) for reading in readings}
    without_shim = {reading.gpu.uuid: unlimited(reading, usages, job_of) for reading in readings}
    return GpuReadings(readings, accounts, usages, without_shim)


def _afterwards(admitted: list[Job], ended: list[Path]) -> None:
    if admitted:
        from cotenant.local import wake

        for job in admitted:
            wake.ring(job.id)
    for folder in ended:
        slot_folder.remove(folder)

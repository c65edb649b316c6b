"""Changes the ledger and serves the line, in one pass that every change goes through.

Load, remove what has ended, read the GPUs, serve the line, write, commit; then wake the jobs that were
admitted. The process that frees room makes this pass for everybody in line, so a waiting job starts the
moment there is room, without polling.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import BadInput, LedgerUnusable, NoRoom
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Ledger
from cotenant.core.line import Fairness, Served, order, serve
from cotenant.core.placement import impossible, why_not
from cotenant.core.refusal import Refusal
from cotenant.core.seen_pods import SeenPods
from cotenant.hardware import slots
from cotenant.hardware.accounting import NOISE, GpuAccount
from cotenant.hardware.nvml import CardReading, NoDriver, with_known
from cotenant.local import processes, reap, slot_folder
from cotenant.local.account import account, unlimited
from cotenant.local.ended import EndedJob
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.names import unique
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
        capped = machine.caps.never(job.owner, job.demand, (reading.gpu for reading in sight.readings))
        if capped is not None:
            raise BadInput(f"gpu-memory: {capped}: ask for less, or ask root, who sets the cap")
        admitted, joined = _serve(machine, books, job.id, sight)
        waiting = sum(other.owner == job.owner for other in books.waiting)
        full = not joined.job.shares and wait and machine.caps.full_line(job.owner, waiting)
        if not joined.job.shares and (full or not wait):
            del books.jobs[job.id]
    _afterwards([other for other in admitted if other.id != job.id], ended)
    if full:
        raise NoRoom(
            f"{joined.refusal}: not waiting, since {job.owner} has {waiting - 1} in line already, "
            "the most that one user may have"
        )
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


def is_stopping(machine: Machine, id: str) -> bool:
    """Whether Cotenant itself has begun to stop the job."""
    job = machine.store.find(id)
    return job is not None and job.stopping is not None


def finish(machine: Machine, id: str, code: int) -> EndedJob | None:
    """Records the exit code of a command that has ended, releases its grant and serves the line. Returns what
    is left to say of the job; None while another process still uses its slot.
    """
    with machine.store.change() as books:
        job = books.jobs.get(id)
        if job is not None:
            books.jobs[id] = replace(job, code=code)
        ended = reap.reap(books, machine)
        admitted = _grant_if_seen(machine, books)
        last = books.ended(id)
        if last is not None:  # another `cotenant` may have seen its end first, without the code
            last = replace(last, code=code)
            books.keep_ended(last)
    _afterwards(admitted, ended)
    return last


def ended_jobs(machine: Machine) -> list[EndedJob]:
    """Lists the jobs that have ended, the last first, also those whose end nobody has seen yet."""
    if any(not reap.is_alive(job) for job in machine.store.jobs()):
        with contextlib.suppress(LedgerUnusable):
            release_ended(machine)
    return machine.store.ended()


def places(jobs: list[Job], turns: Mapping[str, int]) -> dict[str, int]:
    """The place in line of each waiting job, by id."""
    line = order((job for job in jobs if not job.shares), turns)
    return {job.id: place for place, job in enumerate(line, start=1)}


def why_waits(
    machine: Machine, job: Job, jobs: Iterable[Job], ledger: Ledger, held: Mapping[str, str] | None = None
) -> Refusal | None:
    """Returns why a job waits: no room, or its user has all that one user may have. None if it could start.
    `held` maps a GPU that is held for another job to that job's name; by default as the jobs say.
    """
    known = list(jobs)
    if held is None:
        held = {uuid: other.name for other in known for uuid in other.held if other.id != job.id}
    fair = _fairness(machine, known, {})
    return why_not(ledger, job.demand, held) or fair.refuse(job.waiting, fair.holding(ledger), ledger)


def _fairness(machine: Machine, jobs: Iterable[Job], turns: Mapping[str, int]) -> Fairness:
    return Fairness(turns, {job.id: job.owner for job in jobs if job.shares}, machine.caps)


def _grant(machine: Machine, books: Books, sight: GpuReadings | None = None) -> tuple[list[Job], Served]:
    """Serves the line; those admitted are charged in the books."""
    if sight is None:
        sight = read_gpus(machine, list(books.jobs.values()), books.cards())
    books.know_cards({reading.gpu.uuid: replace(reading.gpu, healthy=True) for reading in sight.readings})
    line, time = [job.waiting for job in books.waiting], now()
    fair = _fairness(machine, books.granted, books.turns())
    served = serve(
        sight.ledger(books.granted), line, time, machine.patience, SeenPods.of(books.history()), fair
    )
    admitted = []
    for grant in served.admitted:
        job = replace(books.jobs[grant.id], shares=grant.shares, held=(), granted=time)
        books.jobs[grant.id] = job
        books.remember(job.demand, job.owner if job.id in served.turns else None)
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
        refusal = why_waits(machine, job, books.jobs.values(), served.ledger, names)
        place = places(list(books.jobs.values()), books.turns())[asking]
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
    by_entry: dict[int, list[str]] = {}
    for id, usage in usages.items():
        for entry in usage.processes:
            by_entry.setdefault(entry.pid, []).append(id)
    slot_of = {job.id: job.slot for job in granted}
    own_pid = functools.cache(processes.own_pid)

    @functools.cache  # each process is asked for more than once, and /proc is slow
    def job_of(pid: int) -> str | None:
        above = next((by_pid[above] for above in processes.ancestors(pid) if above in by_pid), None)
        if above is not None:
            return above
        named = by_entry.get(own_pid(pid), [])  # in two containers the same PID may be in use
        maps = (id for id in named if processes.maps(pid, str(slot_of[id] / "usage")))
        return named[0] if len(named) == 1 else next(maps, None)

    accounts = {reading.gpu.uuid: account(reading, granted, usages, job_of, own_pid) for reading in readings}
    without_shim = {reading.gpu.uuid: unlimited(reading, usages, job_of, own_pid) for reading in readings}
    return GpuReadings(readings, accounts, usages, without_shim)


def _afterwards(admitted: list[Job], ended: list[Path]) -> None:
    if admitted:
        from cotenant.local import wake

        for job in admitted:
            wake.ring(job.id)
    for folder in ended:
        slot_folder.remove(folder)

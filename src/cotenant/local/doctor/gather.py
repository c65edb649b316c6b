"""Reads the facts without changing anything: the ledger, the processes, the slots and the GPUs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from cotenant.core.errors import LedgerUnusable
from cotenant.hardware import slots
from cotenant.hardware.nvml import NoDriver
from cotenant.local import line, mps, processes, reap, slot_folder
from cotenant.local.doctor import places
from cotenant.local.doctor.facts import GpuFacts, Holding, LedgerFault, MachineFacts, Row, Stray
from cotenant.local.doctor.libraries import System
from cotenant.local.job import Job
from cotenant.local.machine import Machine

_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""Errors of SQLite that say nothing about the content of the file."""


def gather(machine: Machine, system: System) -> MachineFacts:
    home = machine.home
    jobs, ledger = _jobs(machine)
    rows = tuple(_row(job) for job in jobs)
    cards, driver = _cards(machine, [row.job for row in rows if row.alive], ledger)
    return MachineFacts(
        home=home,
        system=system,
        access=tuple(places.access(home)),
        filesystem=places.filesystem_of(home.slots),
        locked_by=places.lock_holder(home.lock, places.LOCK_PATIENCE),
        ledger=ledger,
        rows=rows,
        strays=tuple(_stray(folder) for folder in slot_folder.find_strays(home, {job.id for job in jobs})),
        driver=driver,
        cards=cards,
        unused_mps=mps.own_place(home).pipe if mps.is_unused(home, jobs) else None,
    )


def _jobs(machine: Machine) -> tuple[list[Job], LedgerFault | None]:
    try:
        machine.store.cards()
        return machine.store.jobs(), None
    except LedgerUnusable as error:
        return [], LedgerFault(str(error), _is_damage(error.__cause__))
    except (ValueError, TypeError) as error:  # a row about a GPU that cannot be decoded
        return [], LedgerFault(f"the ledger {machine.home.ledger} is damaged ({error})", damaged=True)


def _is_damage(cause: BaseException | None) -> bool:
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return isinstance(cause, sqlite3.Error) and code & 0xFF not in _NOT_DAMAGE


def _row(job: Job) -> Row:
    alive = reap.is_alive(job)
    if not job.shares or not alive:
        return Row(job, alive)
    try:
        slots.read_usage(job.slot)
        return Row(job, alive, slots.read_limits(job.slot))
    except slots.SlotUnusable as error:
        return Row(job, alive, obstacle=str(error))


def _stray(folder: Path) -> Stray:
    job = slot_folder.read(folder)
    alive = (job is not None and job.process.alive()) or (folder.is_dir() and slots.is_held(folder))
    return Stray(folder, alive, job)


def _cards(
    machine: Machine, jobs: list[Job], ledger: LedgerFault | None
) -> tuple[tuple[GpuFacts, ...], str | None]:
    try:
        known = {} if ledger else machine.store.cards()
        sight = line.read_gpus(machine, jobs, known)
    except NoDriver as error:
        return (), str(error)
    owner = _owners(jobs)
    found = []
    for reading in sight.readings:
        account = sight.accounts[reading.gpu.uuid]
        strangers = {process.pid for process in account.strangers}
        own = [
            (job, process.pid, process.bytes)
            for process in reading.processes
            if process.pid not in strangers and process.bytes is not None
            for job in [owner(process.pid)]
            if job is not None
        ]
        holdings = tuple(
            Holding(job, pid, told, _counted(job, pid, reading.gpu.uuid, sight)) for job, pid, told in own
        )
        found.append(GpuFacts(reading, account, holdings))
    return tuple(found), None


def _owners(jobs: list[Job]) -> Callable[[int], Job | None]:
    by_pid = {job.process.pid: job for job in jobs}
    return lambda pid: next((by_pid[each] for each in processes.ancestors(pid) if each in by_pid), None)


def _counted(job: Job, pid: int, uuid: str, sight: line.GpuReadings) -> int | None:
    usage = sight.usages.get(job.id)
    at = next((at for at, share in enumerate(job.shares) if share.uuid == uuid), None)
    if usage is None or at is None:
        return None
    return next((entry.used[at] for entry in usage.processes if entry.pid == pid), None)

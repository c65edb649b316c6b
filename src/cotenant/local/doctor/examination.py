"""Looking at a machine without changing it: what the ledger says, what lives, what the cards tell."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import LedgerUnusable
from cotenant.core.gpu import GPU
from cotenant.hardware import slots
from cotenant.hardware.nvml import CardReading, NoDriver
from cotenant.local import admission, processes, reap, slot_folder
from cotenant.local.account import CardAccount
from cotenant.local.doctor.system import System
from cotenant.local.home import Home
from cotenant.local.job import Job
from cotenant.local.machine import Machine

LOCK_PATIENCE = 2.0
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the kernel spells blanks in the names of mount points."""
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
"""SQLite's reasons that have nothing to do with what is in the file."""


class Access(NamedTuple):
    """A file or folder that local mode writes."""

    path: Path
    mode: int
    wanted: int
    """As it should be."""
    owner: int
    writable: bool
    """By whoever looks."""


class LedgerFault(NamedTuple):
    text: str
    damaged: bool
    """It can be rebuilt; otherwise the file may be well and only cannot be used."""


class Row(NamedTuple):
    """A row of the ledger beside what is found of it."""

    job: Job
    alive: bool
    limits: slots.Limits | None = None
    obstacle: str | None = None
    """Why its slot cannot be used; None if it can, and for one that waits."""


class Stray(NamedTuple):
    """A folder of a slot that no row names."""

    folder: Path
    alive: bool
    job: Job | None
    """What its files tell."""


class Holding(NamedTuple):
    """What a grant's process holds on a card."""

    job: Job
    pid: int
    told: int
    """Bytes, as NVML tells."""
    counted: int | None
    """Bytes, as the slot counts them; None if the shim is not in the process."""


class Card(NamedTuple):
    reading: CardReading
    account: CardAccount
    holdings: tuple[Holding, ...] = ()

    @property
    def gpu(self) -> GPU:
        return self.reading.gpu


class Facts(NamedTuple):
    home: Home
    system: System
    access: tuple[Access, ...] = ()
    filesystem: str = "tmpfs"
    """Of the slots."""
    locked_by: str | None = None
    """Who does not let go of the ledger's lock."""
    ledger: LedgerFault | None = None
    rows: tuple[Row, ...] = ()
    strays: tuple[Stray, ...] = ()
    driver: str | None = None
    """Why the cards cannot be read."""
    cards: tuple[Card, ...] = ()


def examine(machine: Machine, system: System) -> Facts:
    home = machine.home
    jobs, ledger = _jobs(machine)
    rows = tuple(_row(job) for job in jobs)
    cards, driver = _cards(machine, [row.job for row in rows if row.alive], ledger)
    return Facts(
        home=home,
        system=system,
        access=tuple(_access(home)),
        filesystem=filesystem_of(home.slots),
        locked_by=lock_holder(home.lock, LOCK_PATIENCE),
        ledger=ledger,
        rows=rows,
        strays=tuple(_stray(folder) for folder in slot_folder.find_strays(home, {job.id for job in jobs})),
        driver=driver,
        cards=cards,
    )


def wanted_mode(home: Home, path: Path, mode: int) -> int:
    """In a home for all users everybody writes everything; elsewhere nobody but the owner does."""
    if not home.shared:
        return mode & ~0o022
    return mode | (0o777 if path.is_dir() else 0o666)


def filesystem_of(path: Path) -> str:
    """The kind of file system that the path lies on."""
    path, best, kind = Path(os.path.realpath(path)), -1, "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            left, right = line.split(" - ", 1)
            at = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), left.split()[4]))
            if len(at.parts) >= best and path.is_relative_to(at):
                best, kind = len(at.parts), right.split()[0]
    return kind


def lock_holder(path: Path, patience: float) -> str | None:
    """Who has held the lock all the time; None if it can be had, or goes from hand to hand."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        seen: set[int] = set()
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen |= _holders(os.fstat(fd).st_ino)
                time.sleep(0.02)
            else:
                return None
    finally:
        os.close(fd)
    if len(seen) > 1:
        return None
    pid = next(iter(seen), None)
    return "a process that cannot be seen from here" if pid is None else f"pid {pid} ({processes.title(pid)})"


def _holders(inode: int) -> set[int]:
    held = set()
    with open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                held.add(int(fields[4]))
    return held


def _jobs(machine: Machine) -> tuple[list[Job], LedgerFault | None]:
    try:
        machine.store.cards()
        return machine.store.jobs(), None
    except LedgerUnusable as error:
        return [], LedgerFault(str(error), _is_damage(error.__cause__))
    except (ValueError, TypeError) as error:  # a row about a card that nothing can be made of
        return [], LedgerFault(f"the ledger {machine.home.ledger} is damaged ({error})", damaged=True)


def _is_damage(cause: BaseException | None) -> bool:
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return isinstance(cause, sqlite3.Error) and code & 0xFF not in _NOT_DAMAGE


def _access(home: Home) -> list[Access]:
    beside = [Path(f"{home.ledger}{suffix}") for suffix in ("", "-wal", "-shm")]
    found = []
    for path in (home.folder, *beside, home.lock, home.runtime, home.slots):
        try:
            status = path.stat()
        except OSError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        may = os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0))
        found.append(Access(path, mode, wanted_mode(home, path, mode), status.st_uid, may))
    return found


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
) -> tuple[tuple[Card, ...], str | None]:
    try:
        known = {} if ledger else machine.store.cards()
        sight = admission.look(machine, jobs, known)
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
        found.append(Card(reading, account, holdings))
    return tuple(found), None


def _owners(jobs: list[Job]) -> Callable[[int], Job | None]:
    by_pid = {job.process.pid: job for job in jobs}
    return lambda pid: next((by_pid[each] for each in processes.ancestors(pid) if each in by_pid), None)


def _counted(job: Job, pid: int, uuid: str, sight: admission.Sight) -> int | None:
    usage = sight.usages.get(job.id)
    at = next((at for at, share in enumerate(job.shares) if share.uuid == uuid), None)
    if usage is None or at is None:
        return None
    return next((entry.used[at] for entry in usage.processes if entry.pid == pid), None)

"""Compares the slots with the ledger: strays, slots that cannot be used, limits that differ."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.hardware import slots
from cotenant.local import line, slot_folder
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.subject import FIX, MachineSubject
from cotenant.local.job import Job
from cotenant.local.machine import Machine

STRAY = Kind("stray-slot", WARNING, "it takes a little memory of the machine, and nothing else")
UNCHARGED = Kind("uncharged", ERROR, "its GPU memory could be granted a second time")
UNREADABLE = Kind(
    "unreadable-slot", ERROR, "its memory counts as held outside any grant, and its limit may not hold"
)
LOST = Kind(
    "slot-lost",
    ERROR,
    "its processes that start from now on get no GPU memory, and its use is not measured",
)
LIMITS_DIFFER = Kind(
    "limits-differ", ERROR, "it may take more than is charged for it, or less than it was granted"
)


def strays(facts: MachineFacts) -> Iterator[Finding]:
    if facts.ledger is not None:
        return  # without a ledger every slot would look like a stray
    for stray in facts.strays:
        where = str(stray.folder)
        if not stray.alive:
            found = f"{where} belongs to no grant, and no process uses it"
            yield STRAY.at(where, found, f"{FIX}: it removes the folder", "sweep")
        elif stray.job is not None:
            size = format_bytes(stray.job.grant.memory)
            found = f"{stray.job.name} runs with {size}, but is not in the ledger"
            yield UNCHARGED.at(where, found, f"{FIX}: it charges the grant again", "charge")
        else:
            found = f"{where} is in use, but its files do not say by which job or for how much"
            yield UNREADABLE.at(
                where, found, f"find its processes with `fuser {where}/usage` and terminate them"
            )


def usable(facts: MachineFacts) -> Iterator[Finding]:
    for row in facts.rows:
        if row.obstacle is not None:
            yield LOST.at(
                row.job.id,
                f"{row.job.name} runs, but its slot cannot be used: {row.obstacle}",
                f"{FIX}: it makes the slot again. Processes that already run keep the limit they have read",
                "slot",
            )
        elif row.limits is not None and (differs := _difference(row.job, row.limits)):
            do = f"{FIX}: it writes the ledger's figures into the slot"
            yield LIMITS_DIFFER.at(row.job.id, f"{row.job.name}: {differs}", do, "limits")


def _difference(job: Job, limits: slots.Limits) -> str | None:
    charged = {share.uuid: share.memory for share in job.shares}
    allowed = {card.uuid: card.bytes for card in limits.cards}
    if charged.keys() != allowed.keys():
        return f"its slot is for {', '.join(allowed) or 'no GPU'}, but charged is {', '.join(charged)}"
    for uuid, size in charged.items():
        if allowed[uuid] != size:
            return f"its slot allows {allowed[uuid]} bytes of {uuid}, but {size} are charged"
    if limits.mode != job.mode:
        return f"its slot says {limits.mode}, but it was started with {job.mode}"
    if limits.owner != job.id:
        return f"its slot is made for {limits.owner}, not for {job.id}"
    return None


def charge(machine: Machine, target: str) -> str:
    line.release_ended(machine)
    known = {job.id for job in machine.store.jobs()}
    return "charged it again" if Path(target).name in known else "it has ended: removed its slot"


def sweep(machine: Machine, target: str) -> str:
    line.release_ended(machine)
    path = Path(target)
    if not path.is_dir():  # a file, not a slot
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return "removed it"


def write_limits(machine: Machine, target: str) -> str:
    """Holds the lock meanwhile, so that no resize comes in between."""
    with machine.store.change() as books:
        job = granted(books.jobs, target)
        limits = slot_folder.limits_of(job, machine.context_bytes)
        with contextlib.suppress(
            slots.SlotUnusable
        ):  # its programs keep the size of a context they have read
            told = {card.uuid: card.context_bytes for card in slots.read_limits(job.slot).cards}
            kept = (
                card._replace(context_bytes=told.get(card.uuid, card.context_bytes)) for card in limits.cards
            )
            limits = limits._replace(cards=tuple(kept))
        _write_in_place(job.slot / "limits", slots.encode(limits))
    return f"{format_bytes(job.grant.memory)} are in force again"


def make_slot(machine: Machine, target: str) -> str:
    """Writes only `limits` if `usage` is intact: processes that have it mapped stay counted."""
    with machine.store.change() as books:
        job = granted(books.jobs, target)
        try:
            slots.read_usage(job.slot)
        except slots.SlotUnusable:
            slot_folder.remove(job.slot)
            slot_folder.make(machine, job)
            return "made its slot again"
    return write_limits(machine, target)


def granted(jobs: Mapping[str, Job], id: str) -> Job:
    """The job, if it still has a grant."""
    job = jobs.get(id)
    if job is None or not job.shares:
        raise NotRepaired("it has ended meanwhile")
    return job


def _write_in_place(path: Path, data: bytes) -> None:
    """Programs have the file mapped: a new file in its place would not reach them."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, stat.S_IMODE(path.parent.stat().st_mode) & 0o666)
        os.ftruncate(fd, len(data))
        os.pwrite(fd, data, 0)
    finally:
        os.close(fd)


SUBJECT = MachineSubject(
    checks=(strays, usable),
    repairs={"charge": charge, "sweep": sweep, "limits": write_limits, "slot": make_slot},
)

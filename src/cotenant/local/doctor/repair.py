"""What `--fix` does.

Each repair takes what a finding is about and tells what it did; the next look shows whether it helped.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.core.units import Memory, format_bytes
from cotenant.hardware import slots
from cotenant.local import line, slot_folder
from cotenant.local.doctor.lowering import Held, lowered
from cotenant.local.doctor.places import wanted_mode
from cotenant.local.job import Job
from cotenant.local.machine import Machine
from cotenant.local.rebuild import rebuild
from cotenant.local.resize import resize


class NotRepaired(CotenantError):
    """It could not be done, or there is nothing left to do it to."""


def _mode(machine: Machine, target: str) -> str:
    path = Path(target)
    mode = wanted_mode(machine.home, path, stat.S_IMODE(path.stat().st_mode))
    path.chmod(mode)
    return f"mode {mode:03o} is set"


def _rebuild(machine: Machine, _ledger: str) -> str:
    aside = rebuild(machine)
    count = len(machine.store.jobs())
    kept = f"; the old one is {aside}" if aside else ""
    return f"made anew with {count} running grant{'' if count == 1 else 's'}{kept}"


def _settle(machine: Machine, target: str) -> str:
    line.settle(machine)
    known = {job.id for job in machine.store.jobs()}
    return "it is charged again" if Path(target).name in known else "its room is given back"


def _sweep(machine: Machine, target: str) -> str:
    line.settle(machine)
    path = Path(target)
    if not path.is_dir():  # something else than a slot lay there
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return "it is removed"


def _limits(machine: Machine, target: str) -> str:
    """The lock is held meanwhile, so that no resize comes in between."""
    with machine.store.change() as books:
        job = _granted(books.jobs, target)
        limits = slot_folder.limits_of(job, machine.context_bytes)
        with contextlib.suppress(slots.SlotUnusable):  # what its programs were told of contexts stays
            told = {card.uuid: card.context_bytes for card in slots.read_limits(job.slot).cards}
            kept = (
                card._replace(context_bytes=told.get(card.uuid, card.context_bytes)) for card in limits.cards
            )
            limits = limits._replace(cards=tuple(kept))
        _write_in_place(job.slot / "limits", slots.encode(limits))
    return f"{format_bytes(job.grant.memory)} are in force again"


def _slot(machine: Machine, target: str) -> str:
    """Only `limits` is written anew if `usage` is well: who has it mapped stays counted."""
    with machine.store.change() as books:
        job = _granted(books.jobs, target)
        try:
            slots.read_usage(job.slot)
        except slots.SlotUnusable:
            slot_folder.remove(job.slot)
            slot_folder.make(machine, job)
            return "its slot is made anew"
    return _limits(machine, target)


def _lower(machine: Machine, target: str) -> str:
    jobs = machine.store.jobs()
    sight = line.look(machine, jobs, machine.store.cards())
    card = next((reading.gpu for reading in sight.readings if reading.gpu.uuid == target), None)
    if card is None:
        raise NotRepaired(f"{target} does not answer")
    here = {job.id: job for job in jobs if any(share.uuid == target for share in job.shares)}
    used = sight.accounts[target].used
    held = {
        id: Held(share.memory, max(used.get(id, 0), _counted(job, at)))
        for id, job in here.items()
        for at, share in enumerate(job.shares)
        if share.uuid == target
    }
    told = []
    for id, size in lowered(held, card.memory).items():
        after = _shrink(machine, here[id], target, size)
        told.append(f"{after.name} to {format_bytes(after.grant.memory)}")
    if not told:
        raise NotRepaired("all that is granted is in use: stop one of the commands")
    return f"lowered {', '.join(told)}"


def _shrink(machine: Machine, job: Job, uuid: str, size: int) -> Job:
    if job.demand.memory is not None:
        return resize(machine, job.name, Memory(bytes=size * job.demand.count)).after
    with machine.store.change() as books:  # a whole card is as large as the card
        job = _granted(books.jobs, job.id)
        shares = tuple(replace(share, memory=size) if share.uuid == uuid else share for share in job.shares)
        after = books.jobs[job.id] = replace(job, shares=shares)
        machine.shim.change(job.slot, {uuid: size})
        slot_folder.write_record(after)
    return after


def _counted(job: Job, at: int) -> int:
    try:
        return slots.read_usage(job.slot).used(at)
    except slots.SlotUnusable:
        return 0


def _granted(jobs: Mapping[str, Job], id: str) -> Job:
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


REPAIRS: Mapping[str, Callable[[Machine, str], str]] = {
    "mode": _mode,
    "rebuild": _rebuild,
    "settle": _settle,
    "sweep": _sweep,
    "limits": _limits,
    "slot": _slot,
    "lower": _lower,
}

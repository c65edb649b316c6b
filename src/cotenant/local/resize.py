"""Changes the memory of a grant while its command runs.

The ledger never says less than `limits`: to grow, the ledger is charged first; to shrink, the limit is
lowered first, and restored if more is in use.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace

from cotenant.core.caps import Holding
from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput, LedgerUnusable, NoRoom
from cotenant.core.grant import Share
from cotenant.core.units import Memory, format_apart, format_bytes
from cotenant.hardware import slots
from cotenant.local import line, ownership, slot_folder
from cotenant.local.find import by_name
from cotenant.local.job import Job
from cotenant.local.machine import Machine

SETTLING = 0.02
"""Seconds: a process that read the old limit just before it was lowered has published its allocation by
then.
"""


@dataclass(frozen=True)
class Resized:
    before: Job
    after: Job


@dataclass(frozen=True)
class Step:
    """A change of the limit, in bytes; below zero it shrinks."""

    bytes: int


def resize(machine: Machine, name: str, wish: Memory | Step) -> Resized:
    with machine.store.change() as books:
        job = by_name(books.jobs.values(), name)
        ownership.check(job, "resize")
        if not job.shares:
            raise BadInput(f"{name} is still waiting: stop it and ask anew")
        if job.demand.memory is None:
            raise BadInput(f"{name} has whole GPUs: there is nothing to resize")
        sight = line.read_gpus(machine, list(books.jobs.values()), books.cards())
        capacity = {reading.gpu.uuid: reading.gpu.memory for reading in sight.readings}
        demand = replace(job.demand, memory=_after(job, wish) if isinstance(wish, Step) else wish)
        after = replace(
            job, demand=demand, shares=tuple(_share(share, demand, capacity) for share in job.shares)
        )
        grown = [new for new, old in zip(after.shares, job.shares, strict=True) if new.memory > old.memory]
        for other in books.waiting:
            if any(share.uuid in other.held for share in grown):
                raise NoRoom(f"the GPU of {name} is held for {other.name}, which has waited longer")
        if grown and os.geteuid() != 0:
            _check_cap(machine, after, books.granted)
        sight.ledger(books.granted).resize(job.id, after.shares)
        books.unless_committed.append(lambda: _restore(machine, job))
        _lower(machine, job, after, sight)
        books.jobs[job.id] = after
        books.once_committed.append(lambda: _publish(machine, after))
    with contextlib.suppress(LedgerUnusable):  # it is resized; the next `cotenant` serves the line
        line.release_ended(machine)
    return Resized(job, after)


def _check_cap(machine: Machine, after: Job, granted: list[Job]) -> None:
    """Raises NoRoom if the job's user would have more than one user may have."""
    others = [job.grant.memory for job in granted if job.owner == after.owner and job.id != after.id]
    refusal = machine.caps.refuse(after.owner, Holding(0, sum(others)), after.grant.memory)
    if refusal is not None:
        raise NoRoom(str(refusal))


def _after(job: Job, step: Step) -> Memory:
    """Returns what the job is to have after a step, over all its GPUs."""
    if len({share.memory for share in job.shares}) > 1:
        raise BadInput(f"{job.name} has a percentage of GPUs of different sizes: write the new percentage")
    asked = job.demand.memory
    before = job.grant.memory if asked is None or asked.bytes is None else asked.bytes
    if before + step.bytes <= 0:
        less, has = format_bytes(-step.bytes), format_bytes(before)
        raise BadInput(f"memory: {less} less leaves nothing of the {has} that {job.name} has")
    return Memory(bytes=before + step.bytes)


def _publish(machine: Machine, job: Job) -> None:
    with contextlib.suppress(slots.SlotUnusable, OSError):  # it has ended meanwhile
        machine.shim.change(job.slot, {share.uuid: share.memory for share in job.shares})
        slot_folder.write_record(job)


def _restore(machine: Machine, job: Job) -> None:
    """Undoes a lowered limit: more is in use, or the ledger could not be written and has the former one."""
    with contextlib.suppress(slots.SlotUnusable, OSError):
        machine.shim.change(job.slot, {share.uuid: share.memory for share in job.shares})


def _share(share: Share, demand: Demand, capacity: dict[str, int]) -> Share:
    return replace(share, memory=demand.per_card(capacity.get(share.uuid, share.memory)))


def _lower(machine: Machine, before: Job, after: Job, sight: line.GpuReadings) -> None:
    """Lowers the limits that shrink; raises NoRoom if what is in use does not fit."""
    lower = {
        new.uuid: new.memory
        for new, old in zip(after.shares, before.shares, strict=True)
        if new.memory < old.memory
    }
    if not lower:
        return
    machine.shim.change(before.slot, lower)
    time.sleep(SETTLING)
    usage = slots.read_usage(before.slot)
    for at, share in enumerate(after.shares):
        seen = sight.accounts[share.uuid].used.get(before.id, 0) if share.uuid in sight.accounts else 0
        used = max(seen, usage.used(at))
        if share.uuid in lower and used > share.memory:
            asked, found = format_apart(share.memory, used)
            raise NoRoom(f"{asked} asked for {before.name}, {found} in use: it stays as it is")

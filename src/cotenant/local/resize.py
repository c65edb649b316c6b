"""Changes the memory of a grant while its command runs.

The ledger never says less than `limits`: to grow, the ledger is charged first; to shrink, the limit is
lowered first, and restored if more is in use.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput, NoRoom
from cotenant.core.grant import Share
from cotenant.core.units import Memory, format_apart
from cotenant.hardware import slots
from cotenant.local import line, slot_folder
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


def resize(machine: Machine, name: str, memory: Memory) -> Resized:
    with machine.store.change() as books:
        job = by_name(books.jobs.values(), name)
        if not job.shares:
            raise BadInput(f"{name} is still waiting: stop it and ask anew")
        if job.demand.memory is None:
            raise BadInput(f"{name} has whole GPUs: there is nothing to resize")
        sight = line.read_gpus(machine, list(books.jobs.values()), books.cards())
        capacity = {reading.gpu.uuid: reading.gpu.memory for reading in sight.readings}
        demand = replace(job.demand, memory=memory)
        after = replace(
            job, demand=demand, shares=tuple(_share(share, demand, capacity) for share in job.shares)
        )
        grown = [new for new, old in zip(after.shares, job.shares, strict=True) if new.memory > old.memory]
        for other in books.waiting:
            if any(share.uuid in other.held for share in grown):
                raise NoRoom(f"the GPU of {name} is held for {other.name}, which has waited longer")
        sight.ledger(books.granted).resize(job.id, after.shares)
        _lower(machine, job, after, sight)
        books.jobs[job.id] = after
        books.once_committed.append(lambda: _publish(machine, after))
    line.release_ended(machine)
    return Resized(job, after)


def _publish(machine: Machine, job: Job) -> None:
    with contextlib.suppress(slots.SlotUnusable, OSError):  # it has ended meanwhile
        machine.shim.change(job.slot, {share.uuid: share.memory for share in job.shares})
        slot_folder.write_record(job)


def _share(share: Share, demand: Demand, capacity: dict[str, int]) -> Share:
    return replace(share, memory=demand.per_card(capacity.get(share.uuid, share.memory)))


def _lower(machine: Machine, before: Job, after: Job, sight: line.GpuReadings) -> None:
    """Lowers the limits that shrink, and restores them if what is in use does not fit."""
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
            machine.shim.change(before.slot, {old.uuid: old.memory for old in before.shares})
            asked, found = format_apart(share.memory, used)
            raise NoRoom(f"{asked} asked for {before.name}, {found} in use: it stays as it is")

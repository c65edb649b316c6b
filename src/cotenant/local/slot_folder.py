"""Keeps the slots of one machine: beside `limits` and `usage` lies the job's own record.

The record is written before the command starts, so that a lost ledger can be rebuilt from the slots that are
in use.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from cotenant.core.demand import Demand
from cotenant.core.errors import CotenantError
from cotenant.core.units import Memory
from cotenant.hardware import slots
from cotenant.hardware.enforcers.shim import Shim
from cotenant.local.home import Home
from cotenant.local.job import Job
from cotenant.local.machine import Machine
from cotenant.local.processes import Process

_RECORD = "grant.json"


def limits_of(job: Job, context_bytes: int) -> slots.Limits:
    return slots.limits_of(job.id, job.mode, job.shares, lambda _: context_bytes)


def make(machine: Machine, job: Job) -> None:
    """Creates the job's slot with its limits and its record."""
    permissions = slots.SHARED if machine.home.shared else slots.PRIVATE
    try:
        machine.shim.prepare(job.slot, limits_of(job, machine.context_bytes), permissions)
        write_record(job)
    except OSError as error:
        raise slots.SlotUnusable(f"the slot {job.slot} cannot be made: {error.strerror}") from None


def write_record(job: Job) -> None:
    permissions = 0o644 if job.slot.stat().st_mode & 0o007 else 0o600
    slots.write_record(job.slot / _RECORD, json.dumps(job.to_json()).encode(), permissions)


def read(folder: Path) -> Job | None:
    """Reads the job of this slot, from `limits` where its record is damaged; None if neither can be read."""
    try:
        return Job.from_json(json.loads((folder / _RECORD).read_text()))
    except (OSError, AttributeError, LookupError, TypeError, ValueError, CotenantError):
        pass
    try:
        limits = slots.read_limits(folder)
        shares = slots.shares_of(limits)
        memory = Memory(bytes=sum(share.memory for share in shares))
        demand = Demand(memory=memory, gpus=len(shares))
    except (CotenantError, ValueError):
        return None
    nobody = Process(0, 0, "")
    return Job(
        folder.name,
        folder.name,
        "unknown",
        (),
        demand,
        limits.mode,
        Shim.name,
        None,
        nobody,
        0.0,
        folder,
        shares,
    )


def find_strays(home: Home, known: set[str]) -> list[Path]:
    """Lists the folders of slots that no row of the ledger names."""
    return [home.slots / name for name in slots.names(home.slots) if name not in known]


def remove(folder: Path) -> None:
    """Deletes a slot as far as it can; the next `cotenant` finds the rest as a stray."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)

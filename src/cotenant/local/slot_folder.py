"""A slot's folder as local mode keeps it: beside `limits` and `usage` lies the job's own record.

The record is written before the command starts, so that a lost ledger can be rebuilt from the slots that
live.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from cotenant.core.demand import Demand
from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.core.units import Memory
from cotenant.hardware import slots
from cotenant.local.home import Home
from cotenant.local.job import Job
from cotenant.local.processes import Process

_RECORD = "grant.json"


def limits_of(job: Job, context_bytes: int) -> slots.Limits:
    return slots.Limits(
        owner=job.id,
        mode=job.mode,
        cards=tuple(slots.CardLimit(share.uuid, share.memory, context_bytes) for share in job.shares),
    )


def make(home: Home, job: Job, context_bytes: int) -> None:
    try:
        modes = slots.SHARED if home.shared else slots.PRIVATE
        slots.create(job.slot, limits_of(job, context_bytes), modes=modes)
        write_record(job)
    except OSError as error:
        raise slots.SlotUnusable(f"the slot {job.slot} cannot be made: {error.strerror}") from None


def write_record(job: Job) -> None:
    """By rename: whoever reads it sees the whole record, before or after."""
    draft = job.slot / f".{_RECORD}.{os.getpid()}"
    draft.write_text(json.dumps(job.to_json()))
    draft.chmod(0o644 if job.slot.stat().st_mode & 0o007 else 0o600)
    draft.replace(job.slot / _RECORD)


def read(folder: Path) -> Job | None:
    """The job of this slot, as far as its files still tell; None if nothing can be made of them."""
    try:
        return Job.from_json(json.loads((folder / _RECORD).read_text()))
    except (OSError, AttributeError, LookupError, TypeError, ValueError, CotenantError):
        pass
    try:
        limits = slots.read_limits(folder)
        shares = tuple(Share(card.uuid, card.bytes) for card in limits.cards)
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
        "shim",
        None,
        nobody,
        0.0,
        folder,
        shares,
    )


def find_strays(home: Home, known: set[str]) -> list[Path]:
    """Folders of slots that no row of the ledger names."""
    try:
        return [home.slots / name for name in os.listdir(home.slots) if name not in known]
    except FileNotFoundError:
        return []


def remove(folder: Path) -> None:
    """Best effort: what is left is found as a stray by whoever comes next."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)

"""The machine at one moment, for every listing: cards, grants and the line.

Figures are bytes, percent and seconds; `to_json` gives the stable names that scripts read.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import Any

from cotenant.core.errors import LedgerUnusable
from cotenant.core.ledger import Ledger
from cotenant.core.placement import why_not
from cotenant.local import line, reap, slot_folder
from cotenant.local.job import Job
from cotenant.local.line import Sight
from cotenant.local.machine import Machine, now
from cotenant.local.processes import title


@dataclass(frozen=True)
class Stranger:
    """A process on a card that belongs to no grant."""

    pid: int
    bytes: int | None
    command: str


@dataclass(frozen=True)
class CardView:
    uuid: str
    index: int
    model: str
    parent: str | None
    healthy: bool
    problem: str | None
    memory: int
    """Capacity."""
    free: int
    """What a new grant may take."""
    granted: int
    used: int
    """By whomever."""
    used_by_grants: int
    outside: int
    compute_free: int
    utilization: int | None
    whole: bool
    grants: tuple[str, ...]
    """Names."""
    strangers: tuple[Stranger, ...]


@dataclass(frozen=True)
class ShareView:
    uuid: str
    index: int | None
    limit: int
    used: int
    peak: int
    compute: int | None
    whole: bool


@dataclass(frozen=True)
class GrantView:
    id: str
    name: str
    user: str
    command: tuple[str, ...]
    pid: int
    mode: str
    enforcer: str
    """What is really in force: `watch` as soon as a process without the shim is seen on the card."""
    compute: str | None
    limit: int
    used: int
    peak: int
    denied: int
    over: int
    idle_seconds: float | None
    """Since the last launch or allocation; None if there was none yet."""
    running_seconds: float
    processes: tuple[int, ...]
    """Pids that hold memory, as they call themselves."""
    shares: tuple[ShareView, ...]


@dataclass(frozen=True)
class WaitingView:
    id: str
    name: str
    user: str
    command: tuple[str, ...]
    pid: int
    place: int
    waited_seconds: float
    demand: dict[str, Any]
    reason: str
    held: tuple[str, ...]
    """UUIDs of the cards that are held for it."""


@dataclass(frozen=True)
class Snapshot:
    simulated: str | None
    home: str
    gpus: tuple[CardView, ...]
    grants: tuple[GrantView, ...]
    line: tuple[WaitingView, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def snapshot(machine: Machine) -> Snapshot:
    jobs = _living(machine)
    sight = line.look(machine, jobs, machine.store.cards())
    ledger = sight.ledger(jobs)
    granted = sorted((job for job in jobs if job.shares), key=lambda job: (job.granted or 0, job.id))
    waiting = {job.id: job for job in jobs if not job.shares}
    return Snapshot(
        simulated=machine.home.simulated,
        home=str(machine.home.folder),
        gpus=tuple(_card(uuid, sight, ledger, granted) for uuid in sight.accounts),
        grants=tuple(_grant(job, sight) for job in granted),
        line=tuple(_waiting(waiting[id], place, jobs, ledger) for id, place in line.places(jobs).items()),
    )


def _living(machine: Machine) -> list[Job]:
    """What has ended is reaped on the way and what the ledger lost is charged again, if it can be written."""
    jobs = machine.store.jobs()
    strays = slot_folder.find_strays(machine.home, {job.id for job in jobs})
    if not strays and all(reap.is_alive(job) for job in jobs):
        return jobs
    with contextlib.suppress(LedgerUnusable):
        line.settle(machine)
    return [job for job in machine.store.jobs() if reap.is_alive(job)]


def _card(uuid: str, sight: Sight, ledger: Ledger, granted: list[Job]) -> CardView:
    reading = next(reading for reading in sight.readings if reading.gpu.uuid == uuid)
    room, held = ledger.room_on(uuid), sight.accounts[uuid]
    gpu = reading.gpu
    return CardView(
        uuid=uuid,
        index=gpu.index,
        model=gpu.model,
        parent=gpu.parent,
        healthy=gpu.healthy,
        problem=reading.problem,
        memory=gpu.memory,
        free=room.free,
        granted=room.granted,
        used=reading.used,
        used_by_grants=sum(held.used.values()),
        outside=held.outside,
        compute_free=room.compute_free,
        utilization=reading.utilization,
        whole=room.whole,
        grants=tuple(job.name for job in granted if any(share.uuid == uuid for share in job.shares)),
        strangers=tuple(Stranger(each.pid, each.bytes, title(each.pid)) for each in held.strangers),
    )


def _grant(job: Job, sight: Sight) -> GrantView:
    usage = sight.usages.get(job.id)
    index = {reading.gpu.uuid: reading.gpu.index for reading in sight.readings}
    shares = []
    unseen = False
    for at, share in enumerate(job.shares):
        card = sight.accounts.get(share.uuid)
        used = card.used.get(job.id, 0) if card else 0
        unseen = unseen or job.id in sight.unlimited.get(share.uuid, ())
        peak = max(used, usage.peak[at] if usage else 0)
        shares.append(
            ShareView(share.uuid, index.get(share.uuid), share.memory, used, peak, share.compute, share.whole)
        )
    active = usage.last_active if usage else 0
    return GrantView(
        id=job.id,
        name=job.name,
        user=job.user,
        command=job.command,
        pid=job.process.pid,
        mode=job.mode,
        enforcer="watch" if unseen else job.enforcer,
        compute=job.compute,
        limit=sum(share.limit for share in shares),
        used=sum(share.used for share in shares),
        peak=sum(share.peak for share in shares),
        denied=usage.denied if usage else 0,
        over=usage.over if usage else 0,
        idle_seconds=max(0.0, (time.monotonic_ns() - active) / 1e9) if active else None,
        running_seconds=max(0.0, now() - (job.granted or now())),
        processes=tuple(entry.pid for entry in usage.processes) if usage else (),
        shares=tuple(shares),
    )


def _waiting(job: Job, place: int, jobs: list[Job], ledger: Ledger) -> WaitingView:
    held = {uuid: other.name for other in jobs for uuid in other.held if other.id != job.id}
    return WaitingView(
        id=job.id,
        name=job.name,
        user=job.user,
        command=job.command,
        pid=job.process.pid,
        place=place,
        waited_seconds=max(0.0, now() - job.since),
        demand=job.demand.to_json(),
        reason=str(why_not(ledger, job.demand, held) or "about to start"),
        held=job.held,
    )

"""Gathers the view of this machine: GPUs, grants and the line, from ledger, slots and NVML together.

`to_json` gives the names that scripts read: they never change.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import asdict
from typing import Any

from cotenant.core.errors import LedgerUnusable
from cotenant.core.ledger import Ledger
from cotenant.local import line, reap, slot_folder
from cotenant.local.activity import idle_seconds, running_seconds
from cotenant.local.job import Job
from cotenant.local.line import GpuReadings
from cotenant.local.machine import Machine, now
from cotenant.local.names import from_command
from cotenant.local.processes import title, user
from cotenant.observe.view import (
    GpuView,
    GrantView,
    NodeView,
    ProcessView,
    ShareView,
    View,
    WaitingView,
    WorkloadView,
)

_GRANT = ("id", "name", "user", "command", "pid", "mode", "enforcer", "compute", "limit", "used", "peak")
_GRANT_NOW = ("denied", "over", "idle_seconds", "running_seconds", "processes")
_WAITING = ("id", "name", "user", "command", "pid", "place", "waited_seconds", "demand", "reason", "held")


def snapshot(machine: Machine) -> View:
    jobs = living_jobs(machine)
    sight = line.read_gpus(machine, jobs, machine.store.cards())
    granted = sorted((job for job in jobs if job.shares), key=lambda job: (job.granted or 0, job.id))
    waiting = {job.id: job for job in jobs if not job.shares}
    grants = tuple(_grant(job, sight) for job in granted)
    shares = [share for grant in grants for share in grant.shares]
    gpus = tuple(_gpu(uuid, sight, shares) for uuid in sight.accounts)
    node = NodeView(os.uname().nodename, gpus, simulated=machine.home.simulated)
    ledger = sight.ledger(jobs)
    places = line.places(jobs, machine.store.turns()).items()
    in_line = tuple(_waiting(machine, waiting[id], place, jobs, ledger) for id, place in places)
    return View((node,), grants, in_line, workloads={job.id: _workload(job) for job in granted})


def to_json(machine: Machine, view: View) -> dict[str, Any]:
    return {
        "simulated": machine.home.simulated,
        "home": str(machine.home.folder),
        "gpus": [_gpu_json(gpu) for gpu in view.gpus],
        "grants": [_grant_json(grant) for grant in view.grants],
        "line": [_named(_WAITING, waiting) for waiting in view.line],
    }


def _gpu_json(view: GpuView) -> dict[str, Any]:
    gpu, room = view.gpu, view.room
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "model": gpu.model,
        "parent": gpu.parent,
        "healthy": gpu.healthy,
        "problem": view.problem,
        "memory": gpu.memory,
        "shared": gpu.shared,
        "free": room.free,
        "granted": room.granted,
        "used": view.used,
        "used_by_grants": view.used_by_grants,
        "outside": view.outside,
        "compute_free": room.compute_free,
        "utilization": view.utilization,
        "whole": room.whole,
        "grants": [share.name for share in view.shares],
        "strangers": [asdict(process) for process in view.strangers],
    }


def _grant_json(grant: GrantView) -> dict[str, Any]:
    shares = [
        {
            "uuid": share.uuid,
            "index": share.index,
            "limit": share.memory,
            "used": share.used,
            "peak": share.peak,
            "compute": share.compute,
            "whole": share.whole,
        }
        for share in grant.shares
    ]
    return {**_named(_GRANT, grant), **_named(_GRANT_NOW, grant), "shares": shares}


def _named(names: tuple[str, ...], of: object) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def living_jobs(machine: Machine) -> list[Job]:
    """Removes jobs that have ended, and charges again what the ledger lost, if it can be written."""
    jobs = machine.store.jobs()
    strays = slot_folder.find_strays(machine.home, {job.id for job in jobs})
    if not strays and all(reap.is_alive(job) for job in jobs):
        return jobs
    with contextlib.suppress(LedgerUnusable):
        line.release_ended(machine)
    return [job for job in machine.store.jobs() if reap.is_alive(job)]


def _gpu(uuid: str, sight: GpuReadings, shares: list[ShareView]) -> GpuView:
    reading = next(reading for reading in sight.readings if reading.gpu.uuid == uuid)
    held = sight.accounts[uuid]
    return GpuView(
        reading.gpu,
        problem=reading.problem,
        outside=held.outside,
        shares=tuple(share for share in shares if share.uuid == uuid),
        used=reading.used,
        used_by_grants=sum(held.used.values()),
        utilization=reading.utilization,
        strangers=tuple(
            ProcessView(each.pid, each.bytes, title(each.pid), user(each.pid)) for each in held.strangers
        ),
    )


def _grant(job: Job, sight: GpuReadings) -> GrantView:
    usage = sight.usages.get(job.id)
    index = {reading.gpu.uuid: reading.gpu.index for reading in sight.readings}
    shares = []
    unlimited = False
    for at, share in enumerate(job.shares):
        account = sight.accounts.get(share.uuid)
        used = account.used.get(job.id, 0) if account else 0
        unlimited = unlimited or job.id in sight.unlimited.get(share.uuid, ())
        shares.append(
            ShareView(
                job.id,
                job.name,
                share.uuid,
                share.memory,
                share.compute,
                share.whole,
                index=index.get(share.uuid),
                used=used,
                peak=max(used, usage.peak[at] if usage else 0),
            )
        )
    running = running_seconds(job)
    return GrantView(
        id=job.id,
        name=job.name,
        user=job.user,
        command=job.command,
        pid=job.process.pid,
        mode=job.mode,
        enforcer="watch" if unlimited else job.enforcer,
        compute=job.compute,
        denied=usage.denied if usage else 0,
        over=usage.over if usage else 0,
        idle_seconds=None if usage is None else idle_seconds(usage, running),
        running_seconds=running,
        processes=tuple(entry.pid for entry in usage.processes) if usage else (),
        shares=tuple(shares),
    )


def _workload(job: Job) -> WorkloadView:
    """All that runs one program is a workload, and one command line is a version of it."""
    version = hashlib.sha256("\0".join(job.command).encode(errors="surrogateescape")).hexdigest()[:10]
    if job.workload is not None:
        return WorkloadView(job.workload, "Workload", version)
    return WorkloadView(from_command(job.command), "Program", version)


def _waiting(machine: Machine, job: Job, place: int, jobs: list[Job], ledger: Ledger) -> WaitingView:
    return WaitingView(
        id=job.id,
        name=job.name,
        user=job.user,
        command=job.command,
        pid=job.process.pid,
        place=place,
        waited_seconds=max(0.0, now() - job.since),
        demand=job.demand.to_json(),
        reason=str(line.why_waits(machine, job, jobs, ledger) or "about to start"),
        held=job.held,
    )

"""Asks the ledger what scaling would change: how many replicas fit, and whom a release would let start."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cotenant.core.caps import NO_CAPS, Caps, Holding
from cotenant.core.demand import Demand
from cotenant.core.grant import Grant
from cotenant.core.ledger import Ledger
from cotenant.core.placement import place
from cotenant.local import line
from cotenant.local.job import Job
from cotenant.local.machine import Machine


@dataclass(frozen=True)
class Allowance:
    """What one user has, and the most that one user may have."""

    owner: str
    holding: Holding
    caps: Caps = NO_CAPS


def allowance(machine: Machine, owner: str, jobs: Sequence[Job]) -> Allowance:
    holding = Holding()
    for job in jobs:
        if job.shares and job.owner == owner:
            holding = holding.plus(job.grant)
    return Allowance(owner, holding, machine.caps)


def room_for(ledger: Ledger, demand: Demand, closed: Collection[str], most: int, allowed: Allowance) -> int:
    """Counts the replicas that could be placed now, at most `most`: not on GPUs that are held for others, and
    no more than their user may have.
    """
    after, count, holding = ledger.copy(), 0, allowed.holding
    while count < most:
        shares = place(after, demand, closed=closed)
        if shares is None:
            break
        grant = Grant(f"hypothetical-{count}", shares)
        if allowed.caps.refuse(allowed.owner, holding, grant.memory) is not None:
            break
        after.charge(grant)
        holding, count = holding.plus(grant), count + 1
    return count


def would_start(
    machine: Machine, sight: line.GpuReadings, jobs: Sequence[Job], released: Collection[str], workload: str
) -> Job | None:
    """Returns the first job in line, not of this workload, that cannot start now and could if the jobs
    `released` (ids) ended.
    """
    waiting = [job for job in jobs if not job.shares and job.workload != workload and job.stopping is None]
    if not waiting or not released:
        return None
    left = [job for job in jobs if job.id not in released]
    before, after = sight.ledger(list(jobs)), sight.ledger(left)
    by_id = {job.id: job for job in waiting}
    for id in line.places(waiting, machine.store.turns()):
        job = by_id[id]
        if line.why_waits(machine, job, jobs, before) and line.why_waits(machine, job, left, after) is None:
            return job
    return None

"""Compares policies on one trace, over every combination of service time, cold start and target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from cotenant.simulate.scaling import oracle
from cotenant.simulate.scaling.policies.table import build
from cotenant.simulate.scaling.running import HOUR, Conditions, Outcome, run
from cotenant.simulate.scaling.trace import Trace
from cotenant.simulate.scaling.workload import Workload

ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class Load:
    """One workload that is made from the trace."""

    workload: Workload
    service: float
    """The mean service time in seconds."""
    copies: int
    """How many times the trace is laid over itself."""


@dataclass(frozen=True, slots=True)
class Row:
    """All policies under one set of conditions."""

    load: Load
    cold_start: float
    target: float
    bound_hours: float
    outcomes: dict[str, Outcome]
    """By the policy's name; the oracle is one of them."""


@dataclass(frozen=True, slots=True)
class Mean:
    """One policy over all rows."""

    late_percent: float
    turns_per_hour: float
    times_bound: float


Progress = Callable[[float, str], None]
"""Is called with the part that is done, 0 to 1, and what is being done."""


def make_loads(
    trace: Trace, services: Sequence[float], copies: Sequence[int] | None, seed: int
) -> list[Load]:
    """Makes one workload for each service time; without any, the trace's own.

    Where `copies` is None and there are several service times, a load that would keep less than one replica
    busy is laid over itself until its work is that of the next longer service time: a scaler that needs only
    one replica shows nothing.
    """
    base = trace.workload
    if not services:
        count = copies[0] if copies else 1
        return [Load(base.overlaid(count, seed), base.mean_service, count)]
    loads = []
    for number, service in enumerate(services):
        if copies is not None:
            count = copies[number if len(copies) > 1 else 0]
        else:
            count = _copies(base.scaled(service), service, services)
        loads.append(Load(base.overlaid(count, seed).scaled(service), service, count))
    return loads


def compare(
    loads: Sequence[Load],
    cold_starts: Sequence[float],
    targets: Sequence[float],
    policies: Sequence[str],
    conditions: Conditions,
    *,
    wrong: float = 1.0,
    progress: Progress | None = None,
) -> list[Row]:
    """Runs every policy and the oracle under every combination. `wrong`: the policies are told the service
    time times this.
    """
    cells = list(product(loads, cold_starts, targets))
    runs, done = len(cells) * (len(policies) + 1), 0
    rows = []
    for load, cold_start, target in cells:
        world = replace(conditions, cold_start=cold_start, target=target)
        outcomes = dict[str, Outcome]()
        for name in [*policies, ORACLE]:
            what = f"{name}, service {load.service:g} s, cold start {cold_start:g} s, target {target:g} s"
            if progress is not None:
                progress(done / runs, what)
            outcomes[name] = _one(load, name, world, wrong, _part(progress, done, runs, what))
            done += 1
        rows.append(Row(load, cold_start, target, load.workload.bound(world.concurrency) / HOUR, outcomes))
    return rows


def mean(rows: Iterable[Row], policy: str) -> Mean:
    """Averages a policy over the rows; each counts the same, whatever its load."""
    found = [(row.outcomes[policy], row.bound_hours) for row in rows]
    count = len(found)
    return Mean(
        late_percent=sum(each.late_percent for each, _ in found) / count,
        turns_per_hour=sum(each.turns_per_hour for each, _ in found) / count,
        times_bound=sum(each.replica_hours / bound for each, bound in found) / count,
    )


def to_json(rows: Sequence[Row], *, changes: bool = False) -> dict[str, Any]:
    """Returns all figures with stable names; times are seconds."""
    names = list(rows[0].outcomes)
    return {
        "rows": [
            {
                "service": row.load.service,
                "coldStart": row.cold_start,
                "target": row.target,
                "overlay": row.load.copies,
                "requests": len(row.load.workload.arrivals),
                "boundReplicaHours": round(row.bound_hours, 4),
                "policies": {
                    name: _figures(each, row.bound_hours, changes=changes)
                    for name, each in row.outcomes.items()
                },
            }
            for row in rows
        ],
        "mean": {
            name: {
                "latePercent": round(each.late_percent, 4),
                "turnsPerHour": round(each.turns_per_hour, 4),
                "timesBound": round(each.times_bound, 4),
            }
            for name, each in ((name, mean(rows, name)) for name in names)
        },
    }


def _figures(outcome: Outcome, bound: float, *, changes: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "latePercent": round(outcome.late_percent, 4),
        "turns": outcome.turns,
        "turnsPerHour": round(outcome.turns_per_hour, 4),
        "replicaHours": round(outcome.replica_hours, 4),
        "timesBound": round(outcome.replica_hours / bound, 4),
        "unserved": outcome.unserved,
        "meanWait": round(outcome.mean_wait, 4),
        "p99Wait": round(outcome.p99_wait, 4),
        "worstWait": round(outcome.worst_wait, 4),
        "states": dict(outcome.states),
    }
    if changes:
        figures["changes"] = [
            {
                "at": each.at,
                "from": each.before,
                "to": each.wanted,
                "state": each.state,
                "reason": each.reason,
            }
            for each in outcome.changes
        ]
    return figures


def _copies(workload: Workload, service: float, services: Sequence[float]) -> int:
    longer = [each for each in services if each > service]
    return 1 if workload.busy() >= 1 or not longer else max(1, round(min(longer) / service))


def _one(
    load: Load, name: str, world: Conditions, wrong: float, progress: Callable[[float], None] | None
) -> Outcome:
    if name == ORACLE:
        plan = oracle.plan(load.workload, world)
        ideal = replace(world, faults=(), cards=None)
        return run(load.workload, plan, ideal, replicas=plan.first, progress=progress)
    return run(load.workload, build(name, load.service * wrong, world), world, progress=progress)


def _part(progress: Progress | None, done: int, runs: int, what: str) -> Callable[[float], None] | None:
    if progress is None:
        return None
    return lambda part: progress((done + part) / runs, what)

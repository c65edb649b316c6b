"""Describes the replicas of a workload, and decides which of them starts again and which goes first.

A replica has a number and keeps it while its command ends and starts again. Its job is called NAME-NUMBER,
and names are unique in the ledger: so a replica is never started twice, whoever was killed between two steps.
Times are seconds since boot, as in a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from typing import Any

from cotenant.local.job import Job

AT_WORK = 1.5
"""Seconds since its last launch in which a replica counts as at work: launches are noted to the second."""
LAUNCHING = 15.0
"""Seconds in which a `cotenant run` has asked for room. Longer: it was killed before."""
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds before a command that failed starts again, doubled each time, as the kubelet does it. The first
time it starts at once.
"""
LIVED = 600.0
"""Seconds after which a failure counts as the first one again."""


class Phase(IntEnum):
    """How far a replica is; the least is removed first."""

    PAUSED = 0
    """Its command has failed and starts again later."""
    LAUNCHING = 1
    """`cotenant run` is starting."""
    WAITING = 2
    """In line."""
    LOADING = 3
    """It has its GPU and is not ready."""
    IDLE = 4
    BUSY = 5
    LEAVING = 6


@dataclass(frozen=True, slots=True)
class Replica:
    """What is remembered of a replica."""

    number: int
    template: str
    """Digest of the specification with which it was started."""
    asked: float
    """When it was asked for, or has last failed for the first time."""
    launched: float | None = None
    job: str | None = None
    """Id of its job, once it has been seen in the ledger."""
    ready: bool = False
    failures: int = 0
    """In a row."""
    again: float = 0.0
    """Its command is not started before."""
    failure: str | None = None
    leaving: bool = False
    """It is being removed."""
    replaced: bool = False
    """It is stopped only to start again with a changed specification."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Replica:
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


@dataclass(frozen=True, slots=True)
class Live:
    """A replica as it is at this instant."""

    replica: Replica
    job: Job | None
    idle: float | None
    """Seconds since its last launch or allocation; None if that cannot be seen."""
    used: bool
    """Whether it has ever used its GPU."""
    now: float

    @property
    def phase(self) -> Phase:
        if self.replica.leaving or (self.job is not None and self.job.stopping is not None):
            return Phase.LEAVING
        if self.job is None:
            return Phase.PAUSED if self.replica.launched is None else Phase.LAUNCHING
        if not self.job.shares:
            return Phase.WAITING
        if not self.replica.ready:
            return Phase.LOADING
        return Phase.BUSY if self.idle is None or self.idle < AT_WORK else Phase.IDLE

    @property
    def has_gpu_for(self) -> float:
        if self.job is None or self.job.granted is None:
            return 0.0
        return max(0.0, self.now - self.job.granted)

    @property
    def starting_for(self) -> float:
        """The age of its start. One whose command fails again and again has been starting since the first."""
        return max(0.0, self.now - self.replica.asked) if self.replica.failures else self.has_gpu_for

    @property
    def counts(self) -> bool:
        """Whether it is one of the workload's replicas: also one that is replaced, not one that leaves."""
        replaced = self.replica.replaced and not self.replica.leaving
        return replaced or self.phase is not Phase.LEAVING


def job_name(workload: str, number: int) -> str:
    return f"{workload}-{number}"


def number_of(workload: str, job: str) -> int | None:
    """Returns the replica's number from the name of its job; None if the name is not of this form."""
    prefix, dash, number = job.rpartition("-")
    return int(number) if dash and prefix == workload and number.isdecimal() and len(number) < 7 else None


def free_numbers(workload: str, taken: Collection[int], names: Collection[str], count: int) -> list[int]:
    """Returns the lowest numbers that no replica has, and no job of anybody else is called by."""
    found, number = list[int](), 0
    while len(found) < count:
        number += 1
        if number not in taken and job_name(workload, number) not in names:
            found.append(number)
    return found


def removal_order(replicas: Iterable[Live]) -> list[Live]:
    """Sorts replicas: without a GPU, loading (youngest first), idle (longest first), then busy ones."""

    def key(live: Live) -> tuple[float, ...]:
        phase = live.phase
        if phase <= Phase.WAITING:
            return (0, phase, -live.replica.number)
        if phase is Phase.LOADING:
            return (phase, live.has_gpu_for, -live.replica.number)
        return (phase, -(live.idle or 0.0), -live.replica.number)

    return sorted((live for live in replicas if live.counts), key=key)


def pause_after(failures: int) -> float:
    """Returns the seconds before a command that has failed this many times in a row starts again."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 2, 10))

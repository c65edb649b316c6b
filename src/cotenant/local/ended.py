"""Describes a job that has ended: what it had, the most that it held, how long it ran and how it ended.

It is made when the job's row is removed, in the same commit. The slot counts the peak, and outlives the
command and its runner, so it is known also if both were killed with -9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.core.mode import Mode
from cotenant.core.rightsizing import would_do
from cotenant.hardware import slots
from cotenant.local.job import Job
from cotenant.local.processes import boot_id

LONGEST_COMMAND = 1000
"""Characters of a command that are kept."""
_LATER = ("stopped", "workload")
"""Fields that former versions did not write."""


@dataclass(frozen=True, slots=True)
class EndedShare:
    """What it had of one GPU, in bytes."""

    uuid: str
    limit: int
    peak: int | None
    """The most that the shim counted; None if its slot is gone, as after a restart of the machine."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    id: str
    name: str
    user: str
    command: tuple[str, ...]
    mode: Mode
    enforcer: str
    whole: bool
    shares: tuple[EndedShare, ...]
    denied: int
    """Allocations beyond the limit that failed."""
    over: int
    """Allocations beyond the limit that were allowed."""
    ended: float
    """Unix time at which its end was seen: by its runner at once, else by the next `cotenant`."""
    seconds: float | None
    """From its grant until then; None if the machine was restarted in between."""
    code: int | None
    """Exit code as a shell reports it; None if its runner was killed before it could see it."""
    stopped: str | None = None
    """Why Cotenant stopped it without being asked, such as `idle for 2h`; None if it did not."""
    workload: str | None = None
    """The workload of `cotenant up` whose replica it was."""

    @property
    def limit(self) -> int:
        return sum(share.limit for share in self.shares)

    @property
    def peak(self) -> int | None:
        peaks = [share.peak for share in self.shares if share.peak is not None]
        return sum(peaks) if len(peaks) == len(self.shares) else None

    @property
    def measured(self) -> bool:
        """Whether the shim has counted anything, so that `peak` says what the command needs."""
        return bool(self.peak) and self.enforcer != "watch"

    @property
    def would_do(self) -> int | None:
        """Bytes to ask for with --gpu-memory the next time; None if that is not known. Memory is split
        evenly over GPUs, so the fullest of them counts.
        """
        if not self.measured:
            return None
        return would_do(max(share.peak or 0 for share in self.shares)) * len(self.shares)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "command": list(self.command),
            "mode": self.mode,
            "enforcer": self.enforcer,
            "whole": self.whole,
            "shares": [
                {"uuid": share.uuid, "limit": share.limit, "peak": share.peak} for share in self.shares
            ],
            "denied": self.denied,
            "over": self.over,
            "ended": self.ended,
            "seconds": self.seconds,
            "code": self.code,
            "stopped": self.stopped,
            "workload": self.workload,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EndedJob:
        shares = tuple(EndedShare(each["uuid"], each["limit"], each["peak"]) for each in data["shares"])
        given = {name: data[name] for name in cls.__slots__ if name not in ("command", "shares", *_LATER)}
        given |= {name: data.get(name) for name in _LATER}
        return cls(command=tuple(data["command"]), shares=shares, **given)


def end_of(job: Job, now: float, unix_time: float) -> EndedJob:
    """Reads what is left of a job whose processes have ended. `now` is in seconds since boot."""
    try:
        usage = slots.read_usage(job.slot)
    except slots.SlotUnusable:
        usage = None
    same_boot = job.granted is not None and job.process.boot in (boot_id(), "")
    return EndedJob(
        id=job.id,
        name=job.name,
        user=job.user,
        command=_cut(job.command),
        mode=job.mode,
        enforcer=job.enforcer,
        whole=any(share.whole for share in job.shares),
        shares=tuple(
            EndedShare(share.uuid, share.memory, usage.peak[at] if usage is not None else None)
            for at, share in enumerate(job.shares)
        ),
        denied=usage.denied if usage is not None else 0,
        over=usage.over if usage is not None else 0,
        ended=unix_time,
        seconds=max(0.0, now - (job.granted or 0.0)) if same_boot else None,
        code=job.code,
        stopped=None if job.stopping is None else job.stopping.reason,
        workload=job.workload,
    )


def _cut(command: tuple[str, ...]) -> tuple[str, ...]:
    words, left = list[str](), LONGEST_COMMAND
    for word in command:
        if len(word) > left:
            return (*words, word[:left] + "...")
        words.append(word)
        left -= len(word) + 1
    return tuple(words)

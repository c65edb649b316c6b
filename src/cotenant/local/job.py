"""Describes a job, one `cotenant run`: its command, its demand and, once granted, its shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.core.demand import Demand
from cotenant.core.grant import Grant, Share
from cotenant.core.line import Waiting
from cotenant.core.mode import Mode
from cotenant.local.processes import Process


@dataclass(frozen=True, slots=True)
class IdleRule:
    """What happens to a job that uses its GPU no longer (`local/idle.py`)."""

    timeout: float
    """Seconds without a launch and without an allocation."""
    shrink: bool = False
    """Whether its grant first shrinks to what is in use. It is stopped after the same time once more."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """A stop that has begun: SIGTERM was sent, and SIGKILL follows after the grace period."""

    since: float
    grace: float
    """Seconds."""
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"since": self.since, "grace": self.grace, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Job:
    """A job waits in line while it has no shares. Times are seconds since boot, suspends included."""

    id: str
    name: str
    user: str
    command: tuple[str, ...]
    demand: Demand
    mode: Mode
    enforcer: str
    """The strongest that the command allows: `shim`, or `watch` if the shim cannot be loaded into it."""
    compute: str | None
    """`mps` if MPS holds it to the compute that it asked for, `none` if nothing does; None: not asked for."""
    process: Process
    """The process that stands for it: the runner until the command is started, then the command."""
    since: float
    slot: Path
    shares: tuple[Share, ...] = ()
    held: tuple[str, ...] = ()
    """GPUs held for it while it waits."""
    granted: float | None = None
    priority: int = 0
    """Among the waiting jobs of its user."""
    started: bool = False
    """Whether its process is the command, which was started or is about to be."""
    code: int | None = None
    """The command's exit code, once its runner has seen it end."""
    idle: IdleRule | None = None
    shrunk: float | None = None
    """When its grant has shrunk since it was idle."""
    stopping: Stopping | None = None
    """Set before the first signal is sent: a successor goes on with it."""
    workload: str | None = None
    """The workload of `cotenant up` whose replica it is."""

    @property
    def owner(self) -> str:
        """Whose turn it takes in line."""
        return self.user

    @property
    def grant(self) -> Grant:
        return Grant(self.id, self.shares)

    @property
    def waiting(self) -> Waiting:
        return Waiting(self.id, self.demand, self.priority, self.since, self.held, self.owner)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "command": list(self.command),
            "demand": self.demand.to_json(),
            "mode": self.mode,
            "enforcer": self.enforcer,
            "compute": self.compute,
            "process": self.process.to_json(),
            "since": self.since,
            "slot": str(self.slot),
            "shares": [share.to_json() for share in self.shares],
            "held": list(self.held),
            "granted": self.granted,
            "priority": self.priority,
            "started": self.started,
            "code": self.code,
            "idle": None if self.idle is None else [self.idle.timeout, self.idle.shrink],
            "shrunk": self.shrunk,
            "stopping": None if self.stopping is None else self.stopping.to_json(),
            "workload": self.workload,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        return cls(
            id=data["id"],
            name=data["name"],
            user=data["user"],
            command=tuple(data["command"]),
            demand=Demand.from_json(data["demand"]),
            mode=data["mode"],
            enforcer=data["enforcer"],
            compute=data["compute"],
            process=Process.from_json(data["process"]),
            since=data["since"],
            slot=Path(data["slot"]),
            shares=tuple(Share.from_json(share) for share in data["shares"]),
            held=tuple(data["held"]),
            granted=data["granted"],
            priority=data.get("priority", 0),
            started=data.get("started", False),
            code=data.get("code"),
            idle=IdleRule(*data["idle"]) if data.get("idle") else None,
            shrunk=data.get("shrunk"),
            stopping=Stopping(**data["stopping"]) if data.get("stopping") else None,
            workload=data.get("workload"),
        )

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
        )

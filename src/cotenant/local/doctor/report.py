"""Examine, repair, examine again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.local.doctor.examination import Facts, examine
from cotenant.local.doctor.finding import Finding
from cotenant.local.doctor.findings import findings
from cotenant.local.doctor.repair import REPAIRS
from cotenant.local.doctor.system import System
from cotenant.local.machine import Machine

SECOND_LOOK = 0.5
"""Seconds after which a finding must still be there: a job that is just starting has no slot yet."""
ROUNDS = 3
"""One repair may bring the next thing to light."""


@dataclass(frozen=True)
class Outcome:
    finding: Finding
    left: bool
    done: str | None = None
    """What --fix did about it, or why it could not."""

    def to_json(self) -> dict[str, Any]:
        return {**self.finding.to_json(), "fixed": not self.left, "done": self.done}


def diagnose(look: Callable[[], Facts]) -> tuple[Finding, ...]:
    first = {finding.key for finding in findings(look())}
    if not first:
        return ()
    time.sleep(SECOND_LOOK)
    return tuple(finding for finding in findings(look()) if finding.key in first)


def check(machine: Machine, system: System, *, fix: bool) -> tuple[Outcome, ...]:
    def look() -> Facts:
        return examine(machine, system)

    current = diagnose(look)
    if not fix:
        return tuple(Outcome(finding, left=True) for finding in current)
    seen = {finding.key: finding for finding in current}
    done: dict[tuple[str, str], str] = {}
    for _round in range(ROUNDS):
        todo = [finding for finding in current if finding.repair and finding.key not in done]
        if not todo:
            break
        locked = any(finding.kind == "lock-held" for finding in current)
        for finding in todo:
            done[finding.key] = "not tried: the ledger is locked" if locked else _repair(machine, finding)
        current = diagnose(look)
        seen.update((finding.key, finding) for finding in current)
    left = {finding.key for finding in current}
    return tuple(Outcome(finding, key in left, done.get(key)) for key, finding in seen.items())


def _repair(machine: Machine, finding: Finding) -> str:
    try:
        return REPAIRS[finding.repair or ""](machine, finding.target)
    except (CotenantError, OSError) as error:
        return f"could not: {error}"

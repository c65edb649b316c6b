"""One thing that is wrong in a cluster, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ERROR = "error"
"""Something does not work, or a limit does not hold."""
WARNING = "warning"
"""It works, but not as somebody may expect."""

FIX = "run `cotenant doctor --cluster --fix`"


@dataclass(frozen=True)
class Finding:
    kind: str
    """A stable name, for scripts."""
    target: str
    """What it is about: `node n1`, `pod team/a`, a UUID."""
    severity: str
    found: str
    means: str
    do: str
    repair: str | None = None
    """A name in `repair.REPAIRS`; None: only a person can help."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.kind, self.target)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "target": self.target,
            "severity": self.severity,
            "found": self.found,
            "means": self.means,
            "do": self.do,
            "fixable": self.repair is not None,
        }


@dataclass(frozen=True)
class Outcome:
    finding: Finding
    left: bool
    done: str | None = None
    """What --fix did about it, or why it could not."""

    def to_json(self) -> dict[str, Any]:
        return {**self.finding.to_json(), "fixed": not self.left, "done": self.done}

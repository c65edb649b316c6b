"""Describes one thing that is wrong on a machine or in a cluster, and what became of it.

A finding says what was found, what it means for people and what to do next. `repair` names what `--fix` does
about it. Without a repair only a person can help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Severity = Literal["error", "warning"]
ERROR: Final = "error"
"""Something does not work, or a limit does not hold."""
WARNING: Final = "warning"
"""It works, but perhaps not as expected."""


@dataclass(frozen=True)
class Finding:
    kind: str
    """A stable name, for scripts."""
    target: str
    """What it is about: an id, a path, a UUID, `node n1`, `pod team/a`."""
    severity: Severity
    found: str
    means: str
    do: str
    """The next step, with the exact command where there is one."""
    repair: str | None = None
    """Its name in the table of repairs of a subject."""

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
class Kind:
    """Declares what all findings of one kind have in common."""

    name: str
    severity: Severity
    means: str

    def at(
        self,
        target: str,
        found: str,
        do: str,
        repair: str | None = None,
        *,
        means: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """Makes a finding of this kind. `means` and `severity` replace the kind's own."""
        return Finding(self.name, target, severity or self.severity, found, means or self.means, do, repair)


@dataclass(frozen=True)
class Outcome:
    """A finding after the last look."""

    finding: Finding
    left: bool
    """Whether it is still there."""
    done: str | None = None
    """What `--fix` did about it, or why it could not."""

    def to_json(self) -> dict[str, Any]:
        return {**self.finding.to_json(), "fixed": not self.left, "done": self.done}

"""One thing that is wrong, on a machine or in a cluster.

It says what was found, what it means for people and what to do. `repair` names what `--fix` would do about
it; without one, only a person can help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ERROR = "error"
"""Something does not work, or a limit does not hold."""
WARNING = "warning"
"""It works, but not as somebody may expect."""


@dataclass(frozen=True)
class Finding:
    kind: str
    """A stable name, for scripts."""
    target: str
    """What it is about: an id, a path, a UUID, `node n1`, `pod team/a`."""
    severity: str
    found: str
    means: str
    do: str
    repair: str | None = None
    """Its name in the doctor's table of repairs."""

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

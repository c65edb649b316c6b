"""What a doctor of a cluster finds, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotenant.core.finding import ERROR, WARNING, Finding

__all__ = ["ERROR", "FIX", "WARNING", "Finding", "Outcome", "restore"]

FIX = "run `cotenant doctor --cluster --fix`"


def restore(namespace: str, component: str) -> str:
    """What brings a part of the installation back as it was."""
    return (
        f"helm upgrade cotenant charts/cotenant -n {namespace} --reuse-values, or without Helm "
        f"kubectl apply -f deploy/cotenant.yaml -l app.kubernetes.io/component={component}"
    )


@dataclass(frozen=True)
class Outcome:
    finding: Finding
    left: bool
    done: str | None = None
    """What --fix did about it, or why it could not."""

    def to_json(self) -> dict[str, Any]:
        return {**self.finding.to_json(), "fixed": not self.left, "done": self.done}

"""Reads which PodDisruptionBudgets cover a pod, and whether they allow its eviction now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cotenant.kube.api.objects import Generic
from cotenant.kube.scaler.selector import Selector, read_selector


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: Selector | None
    """None: it covers no pod."""
    allowed: int
    """Evictions that it allows now; 0 while its status is not of its present spec."""

    def __str__(self) -> str:
        return f"PodDisruptionBudget {self.namespace}/{self.name}"

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Reports whether the budget is for a pod with these labels; an empty selector is for all pods of the
        namespace.
        """
        if namespace != self.namespace or self.selector is None:
            return False
        return not self.selector.requirements or self.selector.matches(labels)


def read_budget(found: Generic) -> Budget:
    meta, selector = found.metadata, found.spec.get("selector")
    allowed = found.status.get("disruptionsAllowed")
    known = found.status.get("observedGeneration") == meta.generation
    return Budget(
        meta.namespace,
        meta.name,
        read_selector(selector) if isinstance(selector, dict) else None,
        allowed if known and isinstance(allowed, int) else 0,
    )


def budgets_of(budgets: Iterable[Budget], namespace: str, labels: Mapping[str, str]) -> list[Budget]:
    return [each for each in budgets if each.covers(namespace, labels)]

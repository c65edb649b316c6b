"""Adds up what pods take of each node by resource, as kube-scheduler does before it asks about GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Amounts = Mapping[str, int]
"""By resource: CPU in thousandths, all else in whole units."""


class NodeSums:
    """What each node has, and what its pods take. A node of which nothing is known has enough of all."""

    def __init__(
        self, has: Mapping[str, Amounts] | None = None, pods: Iterable[tuple[str, Amounts]] = ()
    ) -> None:
        """`pods`: the node of each pod, and what it takes there."""
        self._has = has or {}
        self._taken: dict[str, Counter[str]] = {node: Counter() for node in self._has}
        for node, amounts in pods:
            self.add(node, amounts)

    def add(self, node: str, amounts: Amounts, times: int = 1) -> None:
        """Adds a pod to a node; -1 times removes it."""
        taken = self._taken.get(node)
        if taken is not None:
            for name, amount in amounts.items():
                taken[name] += times * amount

    def missing(self, node: str, amounts: Amounts) -> dict[str, int]:
        """Returns what others must give back before a pod that takes this much fits; empty if it fits."""
        has = self._has.get(node)
        if has is None:
            return {}
        taken, short = self._taken[node], dict[str, int]()
        for name, amount in amounts.items():
            over = taken[name] + amount - has.get(name, 0)
            if amount and over > 0:
                short[name] = over
        return short

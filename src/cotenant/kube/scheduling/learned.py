"""Keeps the measure of losses for a cluster: learned from the pods seen, and what is lost on each node now.

What is lost on a node changes only when something on it does, so it is kept, and a decision about thousands
of nodes needs only what would change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cotenant.core.demand import Demand
from cotenant.core.learning import Supply, learn, next_lesson
from cotenant.core.ledger import Room
from cotenant.core.loss import Loss, Spare
from cotenant.core.seen_pods import PodKind, SeenPods, pod_kinds
from cotenant.kube.scheduling.loss_tables import LossTables, NodeLosses
from cotenant.kube.scheduling.matrix import Matrix, Window

_MUCH = 10
"""Learn again when the cluster has gained or lost this part of its GPU memory, CPU or memory."""
_MANY = 32
"""Nodes that are measured one by one; to measure all of them at once takes no longer than that many."""


ReadNode = Callable[[int], tuple[Sequence[Room], Spare]]
"""Returns what the node of a row has free on its cards, in the order of the matrix, and beside them."""


class Learned:
    """The measure that decisions of the policy `frag` are made by."""

    def __init__(self, matrix: Matrix, supply: Supply, read: ReadNode) -> None:
        self.seen = SeenPods()
        """The statistics: all that the measure is learned from, besides the supply."""
        self.supply = supply
        """What the cluster has; its owner changes it."""
        self.spread = True
        """Whether others than the policy place pods without GPU, as kube-scheduler does."""
        self._matrix, self._read = matrix, read
        self._next = next_lesson(0)
        self._met = 0
        self._taught: Supply | None = None
        """The supply of the last lesson."""
        self._loss = Loss()
        self._tables: LossTables | None = None
        self._kept: NodeLosses | None = None
        self._changed = set[int]()

    def see(self, demands: Sequence[Demand], cpu: int = 0, memory: int = 0) -> None:
        """Counts a pod that was placed; learns when a quarter more were seen than at the last lesson."""
        self.count(pod_kinds(tuple(demands), cpu, memory))

    def count(self, kinds: Iterable[PodKind]) -> None:
        """Counts a pod by the kinds that it counts as."""
        self.seen.count(kinds)
        self._met += 1
        if self._met >= self._next:
            self._next = next_lesson(self._met)
            self._taught = None

    def remember(self, seen: SeenPods) -> None:
        """Takes over statistics, in place of those that are there."""
        self.seen, self._met, self._next = seen, seen.total, next_lesson(seen.total)
        self._taught = None

    def changed(self, row: int) -> None:
        """Says that something on the node has changed."""
        self._changed.add(row)

    @property
    def loss(self) -> Loss:
        """The measure as it was learned last; learns first if that is due."""
        if self._taught is None or self._differs(self._taught):
            self._taught = self.supply.copy()
            self._loss = learn(self.seen, self._taught, spread=self.spread)
            self._tables = None
        return self._loss

    @property
    def tables(self) -> LossTables:
        loss = self.loss
        if self._tables is None or self._tables.known != len(self._matrix.kinds):
            self._tables, self._kept = LossTables(loss, self._matrix.kinds), None
        return self._tables

    def losses(self) -> NodeLosses:
        """Returns what is lost on every node now. Callers must not change it."""
        tables, matrix = self.tables, self._matrix
        kept = self._kept
        if kept is None or kept.cards.shape != matrix.free.shape or len(self._changed) > _MANY:
            kept = self._kept = tables.measure(Window(matrix, range(matrix.free.shape[1])))
        else:
            for row in self._changed:
                kept.put(row, tables.loss.node(*self._read(row)))
        self._changed.clear()
        return kept

    def _differs(self, taught: Supply) -> bool:
        """Reports whether the cluster is another one by now."""
        now, then = self.supply, taught
        if now.cards.keys() != then.cards.keys():
            return True
        has, had = (now.bytes, now.cpu, now.memory), (then.bytes, then.cpu, then.memory)
        return has != had and any(_MUCH * abs(a - b) > b for a, b in zip(has, had, strict=True))

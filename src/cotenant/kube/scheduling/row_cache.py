"""Caches answers about many nodes for each kind of pod, and updates them where a node has changed.

A thousand waiting pods ask for a few different things, and between two of them a node or two has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.matrix import Rows

Demands = tuple[Demand, ...]
T = TypeVar("T", bound=np.generic)


@dataclass(slots=True)
class _Answer(Generic[T]):
    values: NDArray[T]
    seen: int
    """How many of the changes it includes."""


class RowCache(Generic[T]):
    """Caches a value for each of the rows, by demands."""

    def __init__(self, rows: Rows, ask: Callable[[Demands, Rows], NDArray[T]]) -> None:
        self.rows = rows
        """Each once."""
        self._ask = ask
        self._answers: dict[Demands, _Answer[T]] = {}
        self._changes: list[int] = []
        self._at: dict[int, int] | None = None

    def changed(self, row: int) -> None:
        """Says that the answer for this row may not be true any more."""
        if not self._answers:
            return
        if self._at is None:
            self._at = {row: at for at, row in enumerate(self.rows.tolist())}
        at = self._at.get(row)
        if at is not None:
            self._changes.append(at)

    def about(self, demands: Demands) -> NDArray[T]:
        answer = self._answers.get(demands)
        if answer is None:
            answer = self._answers[demands] = _Answer(self._ask(demands, self.rows), len(self._changes))
        elif answer.seen < len(self._changes):
            places = np.unique(np.array(self._changes[answer.seen :], np.intp))
            answer.values[places] = self._ask(demands, self.rows[places])
            answer.seen = len(self._changes)
        return answer.values

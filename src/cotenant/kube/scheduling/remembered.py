"""Answers about all nodes, remembered for each kind of pod and brought up to date where a node changed.

A thousand pods that wait ask for a few different things, and between two of them a node or two has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.matrix import Bools, Rows

Demands = tuple[Demand, ...]
Ask = Callable[[Demands, Rows], Bools]


@dataclass(slots=True)
class _Answer:
    yes: Bools
    seen: int
    """How many of the changes it knows of."""


class Remembered:
    """On which of the rows the answer for some demands is yes."""

    def __init__(self, rows: Rows, ask: Ask) -> None:
        self.rows = rows
        """Ascending."""
        self._ask = ask
        self._answers: dict[Demands, _Answer] = {}
        self._changes: list[int] = []

    def has(self, row: int) -> bool:
        at = int(np.searchsorted(self.rows, row))
        return at < len(self.rows) and int(self.rows[at]) == row

    def changed(self, row: int) -> None:
        """What was answered for this row may not be true any more."""
        at = int(np.searchsorted(self.rows, row))
        if at < len(self.rows) and int(self.rows[at]) == row:
            self._changes.append(at)

    def where(self, demands: Demands) -> Rows:
        answer = self._answers.get(demands)
        if answer is None:
            yes = self._ask(demands, self.rows) if len(self.rows) else np.zeros(0, np.bool_)
            answer = self._answers[demands] = _Answer(yes, len(self._changes))
        elif answer.seen < len(self._changes):
            places = np.unique(np.array(self._changes[answer.seen :], np.intp))
            answer.yes[places] = self._ask(demands, self.rows[places])
            answer.seen = len(self._changes)
        return self.rows[answer.yes]

"""Caches answers about many nodes for each kind of pod, and updates them where a node has changed.

A thousand pods ask for a few different things, and between two of them a node or two has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cotenant.kube.scheduling.matrix import Rows

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=np.generic)

_FEWEST_CHANGES = 1000
"""After more changes than this and than there are rows, all answers are asked for anew."""


@dataclass(slots=True)
class _Answer(Generic[T]):
    values: NDArray[T]
    seen: int
    """How many of the changes it includes."""


class RowCache(Generic[K, T]):
    """Caches a value for each of the rows, by kind of pod. `most`: for how many kinds, those that were asked
    about last.
    """

    def __init__(self, rows: Rows, ask: Callable[[K, Rows], NDArray[T]], most: int | None = None) -> None:
        self.rows = rows
        """Each once."""
        self._ask = ask
        self._most = most
        self._answers: dict[K, _Answer[T]] = {}
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
            if len(self._changes) > max(len(self.rows), _FEWEST_CHANGES):
                self._answers.clear()
                self._changes.clear()

    def about(self, kind: K) -> NDArray[T]:
        """Returns the value of each row. Callers must not change them."""
        answer = self._answers.pop(kind, None)
        if answer is None:
            answer = _Answer(self._ask(kind, self.rows), len(self._changes))
        elif answer.seen < len(self._changes):
            places = np.array(sorted(set(self._changes[answer.seen :])), np.intp)
            answer.values[places] = self._ask(kind, self.rows[places])
            answer.seen = len(self._changes)
        self._answers[kind] = answer
        if self._most is not None and len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]
        return answer.values

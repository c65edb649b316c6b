"""Knows which row of the cluster's matrix each node has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from cotenant.kube.scheduling.matrix import Rows


class NodeRows:
    """A node keeps its row as long as it exists; then another node may get it."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._sum = 0
        """Of the hashes of all names."""
        self._all: tuple[Sequence[str], Rows] | None = None

    def __getitem__(self, name: str) -> int:
        return self._rows[name]

    def get(self, name: str) -> int | None:
        return self._rows.get(name)

    def add(self, name: str, row: int) -> None:
        """Adds a node that is not there yet."""
        self._rows[name] = row
        if row == len(self._names):
            self._names.append(name)
        self._names[row] = name
        self._sum, self._all = self._sum + hash(name), None

    def drop(self, name: str) -> None:
        self._names[self._rows.pop(name)] = ""
        self._sum, self._all = self._sum - hash(name), None

    def name(self, row: int) -> str:
        """Returns the name of the node, empty if no node has this row."""
        return self._names[row]

    def of(self, names: Sequence[str]) -> Rows:
        """Returns the row of each node, -1 if it does not exist."""
        return np.fromiter(map(self._rows.get, names, repeat(-1)), np.int32, len(names))

    def located(self, names: Sequence[str]) -> tuple[Sequence[str], Rows]:
        """Returns nodes and their rows: those that are named, in any order.

        kube-scheduler often names all nodes there are, in another order each time. To look up 5,000 names
        takes a millisecond and a half; to see that they are all takes a fifth of that, since the sums of
        their hashes are equal. (Other names have that sum once in 2^64 times; bind would then refuse them.)
        """
        if len(names) != len(self._rows) or sum(map(hash, names)) != self._sum:
            return names, self.of(names)
        if self._all is None:
            self._all = list(self._rows), np.fromiter(self._rows.values(), np.int32, len(self._rows))
        return self._all

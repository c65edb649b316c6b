"""Holds what every GPU of the cluster has free as one matrix, so that numpy answers for all nodes at once.

In memory a GPU's place on its node comes first and the node second: then everything that is asked of a node,
"any GPU", "how many GPUs", "the most of any GPU", runs along memory over thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.ledger import Room
from cotenant.core.loss import PLENTY, Requests, Spare
from cotenant.kube.scheduling.kinds import Kinds

Rows = NDArray[np.int32]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.int64]
Percents = NDArray[np.int8]
Own = tuple[int, list[int]] | None
"""Row and columns of the GPUs that are held for the pod itself."""

FIELDS: dict[str, type[np.generic]] = {
    "free": np.int64,
    "compute": np.int8,
    "unused": np.bool_,
    "size": np.int64,
    "emptied": np.int64,
    "clean": np.bool_,
    "kind": np.int32,
    "uuid": np.int64,
    "held": np.int16,
}

SPARE = ("cpu", "memory", "pods")


class MatrixFields:
    """What is known of every card, and at the end of every node."""

    free: Bytes
    """As `Room.free`."""
    compute: Percents
    """As `Room.compute_free`."""
    unused: Bools
    """As `Room.unused`."""
    size: Bytes
    emptied: Bytes
    """What would be free if every grant on the card ended."""
    clean: Bools
    """Whether the card could then be granted whole."""
    kind: NDArray[np.int32]
    uuid: Bytes
    """A hash, to find those few cards that somebody wishes by UUID."""
    held: NDArray[np.int16]
    """For how many waiting pods it is held."""
    cards: NDArray[np.int16]
    """How many cards the node has."""
    largest: Bytes
    """The size of its largest; 1 if it has none."""
    cpu: Bytes
    """What the node has left beside its GPUs, for the policy `frag`: thousandths of a CPU,"""
    memory: Bytes
    """bytes,"""
    pods: Bytes
    """and places for pods. Without a place for a pod CPU and memory are 0, too."""


class Matrix(MatrixFields):
    """A place for each card: nodes by row, their cards in the order of their indexes; 0 where none is."""

    most: int
    """No node has more bytes in all."""
    added: NDArray[np.int64]
    """By row, the how many-th arrival its node was, counted from 1; 0 where no node is. A row that is used
    again for another node has another number.
    """
    arrivals: int
    """How many nodes have arrived so far."""
    free_of_kind: list[int]
    """By kind of card, the free bytes of all nodes."""

    def __init__(self, rows: int = 64, columns: int = 8) -> None:
        self.kinds = Kinds()
        self.rows = 0
        for name, dtype in FIELDS.items():
            setattr(self, name, np.zeros((columns, rows), dtype))
        self.cards = np.zeros(rows, np.int16)
        self.largest = np.ones(rows, np.int64)
        self.added = np.zeros(rows, np.int64)
        for name in SPARE:
            setattr(self, name, np.full(rows, PLENTY, np.int64))
        self.arrivals = 0
        self.free_of_kind: list[int] = [0]
        self.most = 0
        self._free: list[int] = []

    def copy(self) -> Matrix:
        """Copies the matrix, to try things out. Only what may change is copied."""
        other = Matrix.__new__(Matrix)
        other.__dict__ |= self.__dict__
        for name in ("free", "compute", "unused", "held", *SPARE):
            setattr(other, name, getattr(self, name).copy())
        return other

    def add_row(self) -> int:
        """Returns the row for a new node: one that a former node has left, if there is any."""
        if self._free:
            row = self._free.pop()
        else:
            if self.rows == self.cards.shape[0]:
                self._grow(rows=2 * self.rows)
            row, self.rows = self.rows, self.rows + 1
        self.arrivals += 1
        self.added[row] = self.arrivals
        return row

    def drop_row(self, row: int) -> None:
        """Empties the row of a node that is gone; the next new node gets it."""
        self.lay_out(row, ())
        self.spare(row, Spare())
        self.added[row] = 0
        self._free.append(row)

    def lay_out(self, row: int, rooms: Iterable[Room]) -> None:
        """Sets the node's GPUs, in this order, with no holds."""
        rooms = tuple(rooms)
        if len(rooms) > self.free.shape[0]:
            self._grow(columns=len(rooms))
        for kind, free in zip(self.kind[:, row].tolist(), self.free[:, row].tolist(), strict=True):
            self.free_of_kind[kind] -= free
        for name in FIELDS:
            getattr(self, name)[:, row] = 0
        self.cards[row] = len(rooms)
        self.largest[row] = max((room.gpu.memory for room in rooms), default=0) or 1
        self.most = max(self.most, sum(room.gpu.memory for room in rooms))
        for column, room in enumerate(rooms):
            gpu = room.gpu
            self.size[column, row] = gpu.memory
            self.emptied[column, row] = max(0, gpu.memory - room.outside) if gpu.healthy else 0
            self.clean[column, row] = gpu.healthy and not room.outside
            kind = self.kind[column, row] = self.kinds.number(gpu)
            if kind == len(self.free_of_kind):
                self.free_of_kind.append(0)
            self.uuid[column, row] = hash(gpu.uuid)
            self.update(row, column, room)

    def spare(self, row: int, spare: Spare) -> None:
        """Sets what the node has left beside its GPUs."""
        self.cpu[row], self.memory[row], self.pods[row] = spare.cpu, spare.memory, spare.pods

    def take_beside(self, row: int, requests: Requests) -> None:
        """Takes what a pod requests beside GPUs of what the node has left."""
        now = Spare(int(self.cpu[row]), int(self.memory[row]), int(self.pods[row]))
        self.spare(row, now.less(requests.cpu, requests.memory))

    def update(self, row: int, column: int, room: Room) -> None:
        self.free_of_kind[self.kind[column, row]] += room.free - int(self.free[column, row])
        self.free[column, row] = room.free
        self.compute[column, row] = room.compute_free
        self.unused[column, row] = room.unused

    def _grow(self, rows: int | None = None, columns: int | None = None) -> None:
        old_columns, old_rows = self.free.shape
        shape = columns or old_columns, rows or old_rows
        for name, dtype in FIELDS.items():
            larger = np.zeros(shape, dtype)
            larger[:old_columns, :old_rows] = getattr(self, name)
            setattr(self, name, larger)
        self.cards = np.pad(self.cards, (0, shape[1] - old_rows))
        self.added = np.pad(self.added, (0, shape[1] - old_rows))
        self.largest = np.pad(self.largest, (0, shape[1] - old_rows), constant_values=1)
        for name in SPARE:
            padded = np.pad(getattr(self, name), (0, shape[1] - old_rows), constant_values=PLENTY)
            setattr(self, name, padded)


class Window(MatrixFields):
    """The matrix at some rows; at a range of them, or at all (None), it costs no copy.

    It has the fields of the matrix, each taken when it is first asked for.
    """

    def __init__(self, matrix: Matrix, rows: Rows | range | None) -> None:
        self.matrix = matrix
        self.rows = range(matrix.rows) if rows is None else rows
        self.width = len(self.rows)

    @property
    def places(self) -> Rows:
        """The rows, one by one."""
        rows = self.rows
        return np.arange(rows.start, rows.stop, dtype=np.int32) if isinstance(rows, range) else rows

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in MatrixFields.__annotations__:
            raise AttributeError(name)
        field, rows = getattr(self.matrix, name), self.rows
        part: NDArray[Any] = (
            field[..., rows.start : rows.stop] if isinstance(rows, range) else field.take(rows, axis=-1)
        )
        setattr(self, name, part)
        return part


def open_cards(window: Window, own: Own) -> Bools | None:
    """Returns the GPUs that are held for no other pod; None if none is held at all."""
    if not np.count_nonzero(window.held):
        return None
    open_: Bools = held_less(window, window.held, own) == 0
    return open_


def held_less(window: Window, held: NDArray[np.int16], own: Own) -> NDArray[np.int16]:
    """Returns for how many pods each GPU of the window is held, without what is held for the pod itself."""
    if own is None:
        return held
    row, columns = own
    at = np.flatnonzero(window.places == row)
    held = held.copy()
    for column in columns:
        held[column, at] -= 1
    return held

"""Keeps what each node costs a kind of pod by the policy `frag`, and updates it where a node has changed.

Most pods ask for what pods before them did, and each of those changed one node. So a decision about thousands
of nodes measures the few that changed since the last pod of its kind. For so few the core's plain functions
are faster than numpy, which takes as long for one row as for a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.demand import Demand
from cotenant.core.loss import Outlook, Requests
from cotenant.core.placement import lost_by
from cotenant.kube.scheduling.kinds import NOWHERE
from cotenant.kube.scheduling.learned import Learned, ReadNode
from cotenant.kube.scheduling.loss_tables import LossTables, NodeLosses, SpareRows
from cotenant.kube.scheduling.matrix import Bools, Bytes, Matrix, Own, Rows, Window, open_cards
from cotenant.kube.scheduling.policy import costs
from cotenant.kube.scheduling.row_cache import RowCache

_AT_A_TIME = 2048
"""Nodes that are measured at once: what is worked out for them stays in the processor's cache."""
_ONE_BY_ONE = 6
"""Nodes that are measured one by one, if the pod asks for a part of one card."""
_KINDS = 64
"""Kinds of pods for which costs are kept."""


@dataclass(frozen=True, slots=True)
class AskingKind:
    """What the costs of a pod depend on, beside the nodes."""

    demands: tuple[Demand, ...]
    requests: Requests
    reserved: frozenset[str]
    """Models that are kept for others."""

    def reserved_cards(self, matrix: Matrix) -> Bools | None:
        """Returns, by kind of card, whether it is kept for others; None if none is."""
        if not self.reserved:
            return None
        return np.array([False, *(gpu.model in self.reserved for gpu in matrix.kinds.gpus)])


def costs_at(
    matrix: Matrix,
    tables: LossTables,
    kind: AskingKind,
    rows: Rows | range,
    losses: NodeLosses | None = None,
    own: Own = None,
) -> Bytes:
    """Returns the costs of these rows in bytes, NOWHERE where the pod does not fit. `losses`: what is lost on
    each row now; None if that is to be measured. `own`: the GPUs held for the pod itself.
    """
    reserved, parts = kind.reserved_cards(matrix), list[Bytes]()
    for start in range(0, len(rows), _AT_A_TIME):
        window = Window(matrix, rows[start : start + _AT_A_TIME])
        now = tables.measure(window) if losses is None else losses.at(window.rows)
        spare = SpareRows.less(window, kind.requests.cpu, kind.requests.memory)
        parts.append(costs(tables, now, window, kind.demands, open_cards(window, own), spare, reserved))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class KeptCosts:
    """The costs of all rows of a ledger's matrix, by kind of pod."""

    def __init__(self, matrix: Matrix, learned: Learned, read: ReadNode) -> None:
        self._matrix, self._learned, self._read = matrix, learned, read
        self._tables: LossTables | None = None
        self._cache: RowCache[AskingKind, np.int64] | None = None

    def changed(self, row: int) -> None:
        """Says that something on the node has changed, or what is held there."""
        if self._cache is not None:
            self._cache.changed(row)

    def about(self, kind: AskingKind) -> Bytes:
        """Returns the cost of each row. GPUs that are held count as held for others. Callers must not change
        what they get.
        """
        tables, rows = self._learned.tables, self._matrix.free.shape[1]
        if self._cache is None or tables is not self._tables or len(self._cache.rows) != rows:
            self._tables = tables
            self._cache = RowCache(np.arange(rows, dtype=np.int32), self._measure, _KINDS)
        return self._cache.about(kind)

    def _measure(self, kind: AskingKind, rows: Rows) -> Bytes:
        """Of most rows, all are measured: they need not be copied."""
        every, losses = self._matrix.free.shape[1], self._learned.losses()
        if len(rows) <= _ONE_BY_ONE and _is_one_part(kind.demands):
            lost = losses.lost
            return np.array([self._measure_one(kind, row, int(lost[row])) for row in rows.tolist()], np.int64)
        if 2 * len(rows) <= every:
            return costs_at(self._matrix, self._learned.tables, kind, rows, losses)
        return costs_at(self._matrix, self._learned.tables, kind, range(every), losses).take(rows)

    def _measure_one(self, kind: AskingKind, row: int, lost: int) -> int:
        """Returns the cost of a node of which so much is lost already."""
        rooms, spare = self._read(row)
        held = self._matrix.held[:, row].tolist()
        closed = (
            [room.gpu.uuid for room, holds in zip(rooms, held, strict=False) if holds] if any(held) else ()
        )
        after = spare.less(kind.requests.cpu, kind.requests.memory)
        outlook = Outlook(self._learned.loss, spare, after, kind.reserved)
        lost_then = lost_by(rooms, kind.demands[0], outlook, closed)
        return NOWHERE if lost_then is None else lost_then - lost


def _is_one_part(demands: Sequence[Demand]) -> bool:
    return len(demands) == 1 and demands[0].count == 1 and demands[0].memory is not None

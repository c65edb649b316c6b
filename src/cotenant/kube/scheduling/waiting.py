"""The pods that wait, in the order in which they are served.

A smaller pod may pass a bigger one that does not fit yet, so that cards are not left idle. But one that has
waited as long as `patience` holds cards of one node: nobody behind it is put there any more, so they drain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.fragmentation import Typical
from cotenant.kube.scheduling.filling import drained, fill
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.matrix import Bools, Matrix, Rows, Window
from cotenant.kube.scheduling.ranking import ranked
from cotenant.kube.scheduling.remembered import Remembered
from cotenant.kube.scheduling.scan import Own, fitting
from cotenant.kube.scheduling.wants import enough, want

_MOST_RANKED = 64
"""Of more nodes with room than this, which one a pod will be put on makes no difference to the others."""

_MOST_SEARCHES = 16
"""For how many pods cards to hold are looked for on the quick path; the others' turn comes with the next."""

Place = tuple[int, list[int]]
"""A row and columns of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One pod in the line."""

    uid: str
    demands: tuple[Demand, ...]
    priority: int
    since: float
    """Since when it waits, on the clock of `now`: its patience counts from here."""
    eligible: NDArray[np.bool_] | None = None
    """By row: whether it may go there, GPUs aside. None, and rows beyond the end: it may."""
    created: float = 0.0
    """Unix time: among equals the older pod comes first."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is to be done: wake these, in this order, and hold these cards (those not named hold nothing)."""

    wake: tuple[str, ...]
    holds: Mapping[str, tuple[str, tuple[str, ...]]]
    """UID of a waiting pod to the node and the cards held for it."""
    places: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """For each of those to be woken, the node and the cards against which it was counted, part by part.

    It may be put elsewhere: which node it gets is decided when it asks.
    """


def order(line: Iterable[Waiting]) -> list[Waiting]:
    """Higher priority first, then the older one, then by UID so that all agree."""
    return sorted(line, key=lambda waiting: (-waiting.priority, waiting.created, waiting.since, waiting.uid))


def serve(
    fleet: Fleet, line: Sequence[Waiting], now: float, patience: float, rows: Rows | None = None
) -> Served:
    """Decide who is woken and which cards are held for whom. The fleet is not changed.

    Everybody sees the room that is left by those in front: what one is woken for, no other is. The holds of
    those behind give way. On the quick path, with the `rows` that gained room since the last time, nobody
    looks for room elsewhere, and earlier holds are taken to be good.
    """
    queue = order(line)
    turn = _Turn(fleet, queue, rows)
    wake, holds = dict[str, tuple[str, tuple[str, ...]]](), dict[str, tuple[str, tuple[str, ...]]]()
    for waiting in queue:
        own = turn.comes(waiting.uid)
        row = turn.find_room(waiting, own)
        overdue = now - waiting.since >= patience
        if row is not None:
            wake[waiting.uid] = fleet.name(row), fleet.uuids(row, turn.take(row, waiting, own))
            keeps = own is not None and own[0] == row
        else:
            keeps = own is not None and overdue and turn.is_good(own, waiting)
        if own is not None and not keeps:
            turn.let_go(own)
            own = None
        if row is None and overdue and own is None:
            own = turn.find_cards(waiting)
        if own is not None:
            holds[waiting.uid] = fleet.name(own[0]), tuple(sorted(fleet.uuids(*own)))
    return Served(tuple(wake), holds, wake)


class _Turn:
    """The cluster as it is left by those whose turn has been."""

    def __init__(self, fleet: Fleet, queue: Sequence[Waiting], rows: Rows | None) -> None:
        self.matrix: Matrix = fleet.matrix.copy()
        self.typical: Typical = fleet.typical
        self.rows = rows
        self._holds = _earlier(fleet, queue)
        self._held = {row for row, _ in self._holds.values()}
        self.behind = np.zeros_like(self.matrix.held)
        for row, columns in self._holds.values():
            self.behind[columns, row] += 1
        self.matrix.held[:] = self.behind
        self.spoken = np.zeros(self.matrix.held.shape, np.bool_)
        """Cards of which somebody who is woken takes a part: not to be held in the same turn."""
        among = np.arange(self.matrix.rows, dtype=np.int32) if rows is None else np.unique(rows)
        self._room = Remembered(among, self._fits_among)
        self._room_of_those_behind = Remembered(np.array(sorted(self._held), np.int32), self._fits_behind)
        self._will = Remembered(np.arange(self.matrix.rows, dtype=np.int32), self._will_do)
        self._largest = self._largest_free(among)
        self._largest_held = self._largest_free(self._room_of_those_behind.rows)
        self._searches = 0

    def comes(self, uid: str) -> Place | None:
        """It is this pod's turn; the cards held for it, which are no longer those of somebody behind."""
        own = self._holds.pop(uid, None)
        if own is not None:
            row, columns = own
            self.behind[columns, row] -= 1
            self._changed(row)
        return own

    def find_room(self, waiting: Waiting, own: Place | None) -> int | None:
        """The row where it fits: that of its own hold, or the best, or else one where a hold gives way."""
        demands = waiting.demands
        if own is not None and (self.rows is None or own[0] in self.rows) and _may(waiting, own[0]):
            window = Window(self.matrix, np.array(own[:1], np.int32))
            for behind in (False, True):
                if fill(window, demands, self._open(window, own, behind=behind)).fits[0]:
                    return own[0]
        if self._may_fit(demands, self._largest):
            row = self._best(waiting, self._room.where(demands))
            if row is not None:
                return row
        if self._holds and self._may_fit(demands, self._largest_held):
            return self._best(waiting, self._room_of_those_behind.where(demands))
        return None

    def take(self, row: int, waiting: Waiting, own: Place | None) -> list[int]:
        """Count its demands against this node; the cards' columns, part by part."""
        window = Window(self.matrix, np.array([row], np.int32))
        mine = own if own is not None and own[0] == row else None
        filling = fill(window, waiting.demands, self._open(window, mine, behind=False))
        if not filling.fits[0]:
            filling = fill(window, waiting.demands, self._open(window, mine, behind=True))
        taken = [int(column[0]) for column in filling.taken]
        self._give_way(row, set(taken))
        self.matrix.free[:, row] = filling.free[:, 0]
        self.matrix.compute[:, row] = filling.compute[:, 0]
        self.matrix.unused[:, row] = filling.unused[:, 0]
        self.spoken[taken, row] = True
        self._changed(row)
        if self._room.has(row):
            self._largest = self._largest_free(self._room.rows)
        return taken

    def let_go(self, own: Place) -> None:
        row, columns = own
        self.matrix.held[columns, row] -= 1
        self._changed(row)

    def is_good(self, own: Place, waiting: Waiting) -> bool:
        """Whether the cards that it holds will do once they have drained."""
        row, columns = own
        if self.rows is not None:
            return True
        if not _may(waiting, row):
            return False
        window = Window(self.matrix, np.array([row], np.int32))
        mine = np.zeros_like(window.unused)
        mine[columns] = True
        return bool(fill(window, waiting.demands, mine, drained(window)).fits[0])

    def find_cards(self, waiting: Waiting) -> Place | None:
        """Cards to hold, all that it needs or none: a part of them would lie idle for nothing.

        They are on the node where least is missing now. Those that are held for somebody behind come last.
        """
        self._searches += 1
        if self.rows is not None and self._searches > _MOST_SEARCHES:
            return None
        rows = self._eligible(waiting, self._will.where(waiting.demands))
        if not len(rows):
            return None
        for behind in (False, True):
            window = Window(self.matrix, rows)
            open_ = self._open(window, None, behind=behind) & ~self.spoken[:, rows]
            found = _most_drained(window, waiting.demands, open_)
            if found is not None:
                at, columns = found
                return self._hold(int(rows[at]), columns)
        return None

    def _hold(self, row: int, columns: list[int]) -> Place:
        self._give_way(row, set(columns))
        self.matrix.held[columns, row] += 1
        self._changed(row)
        return row, columns

    def _give_way(self, row: int, taken: set[int]) -> None:
        """Holds of those behind are lost where somebody in front takes one of their cards."""
        if row not in self._held:
            return
        lost = [uid for uid, (at, held) in self._holds.items() if at == row and not taken.isdisjoint(held)]
        for uid in lost:
            columns = self._holds.pop(uid)[1]
            self.behind[columns, row] -= 1
            self.matrix.held[columns, row] -= 1

    def _best(self, waiting: Waiting, rows: Rows) -> int | None:
        rows = self._eligible(waiting, rows)[:_MOST_RANKED]
        if len(rows) < 2:
            return int(rows[0]) if len(rows) else None
        return int(rows[ranked(self.matrix, self.typical, waiting.demands, rows, None)[0]])

    def _eligible(self, waiting: Waiting, rows: Rows) -> Rows:
        if waiting.eligible is None:
            return rows
        known = rows < len(waiting.eligible)
        allowed = ~known
        allowed[known] = waiting.eligible[rows[known]]
        return rows[allowed]

    def _fits_among(self, demands: tuple[Demand, ...], rows: Rows) -> Bools:
        return fitting(Window(self.matrix, rows), demands, None)

    def _fits_behind(self, demands: tuple[Demand, ...], rows: Rows) -> Bools:
        window = Window(self.matrix, rows)
        return fill(window, demands, self._open(window, None, behind=True)).fits

    def _will_do(self, demands: tuple[Demand, ...], rows: Rows) -> Bools:
        window = Window(self.matrix, rows)
        open_ = self._open(window, None, behind=True) & ~self.spoken[:, rows]
        if len(demands) != 1:
            return fill(window, demands, open_, drained(window)).fits
        part = want(demands[0], window)
        return enough(part.fits(*drained(window)) & open_, part.count)

    def _open(self, window: Window, own: Own, *, behind: bool) -> Bools:
        """Cards held for nobody in front, nor for anybody behind unless those holds are to give way."""
        rows = slice(self.matrix.rows) if window.rows is None else window.rows
        held = window.held - self.behind[:, rows] if behind else window.held.copy()
        if own is not None:
            held[own[1], 0] -= 1
        open_: Bools = held == 0
        return open_

    def _changed(self, row: int) -> None:
        for remembered in (self._room, self._room_of_those_behind, self._will):
            remembered.changed(row)

    def _largest_free(self, rows: Rows) -> int:
        free = self.matrix.free
        return int((free if len(rows) == self.matrix.rows else free[:, rows]).max(initial=0))

    def _may_fit(self, demands: Sequence[Demand], largest: int) -> bool:
        """Cheap, and never wrong when it says no: the demand is larger than the largest free room."""
        for demand in demands:
            if demand.memory is not None and demand.memory.bytes is not None and demand.per_card(0) > largest:
                return False
        return True


def _earlier(fleet: Fleet, queue: Sequence[Waiting]) -> dict[str, Place]:
    """The holds of those in line, as far as their cards are still there."""
    holds, held = dict[str, Place](), fleet.holds()
    for uid in held.keys() & {waiting.uid for waiting in queue}:
        place = fleet.held_places(uid)
        if place is not None and len(place[1]) == len(held[uid][1]):
            holds[uid] = place
    return holds


def _may(waiting: Waiting, row: int) -> bool:
    eligible = waiting.eligible
    return eligible is None or row >= len(eligible) or bool(eligible[row])


def _most_drained(window: Window, demands: tuple[Demand, ...], open_: Bools) -> tuple[int, list[int]] | None:
    """The node, by its place in the window, and its cards on which least is missing for the demands."""
    if len(demands) != 1:
        filling = fill(window, demands, open_, drained(window))
        if not filling.fits.any():
            return None
        free = np.where(open_, window.free, 0).sum(axis=0)
        at = int(np.where(filling.fits, free, -1).argmax())
        return at, sorted({int(column[at]) for column in filling.taken})
    part = want(demands[0], window)
    fit = part.fits(*drained(window)) & open_
    fits = enough(fit, part.count)
    if not fits.any():
        return None
    missing = np.where(fit, np.maximum(part.needed(window.size) - window.free, 0), np.int64(2**62))
    ranks = missing.argsort(axis=0, kind="stable")[: part.count]
    total = np.take_along_axis(missing, ranks, axis=0).astype(np.float64).sum(axis=0)
    at = int(np.where(fits, total, np.inf).argmin())
    return at, sorted(int(column) for column in ranks[:, at])

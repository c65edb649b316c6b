"""Serves one waiting pod after another on a copy of the matrix, so that each sees what those ahead leave."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import enough, want
from cotenant.kube.scheduling.eligible import Eligible
from cotenant.kube.scheduling.filling import drained, fill
from cotenant.kube.scheduling.matrix import Bools, Matrix, Rows, Window, held_less
from cotenant.kube.scheduling.ranking import best_on_copy
from cotenant.kube.scheduling.row_cache import RowCache
from cotenant.kube.scheduling.scan import room

_MOST_SEARCHES = 64
"""Pods for which GPUs to hold are searched on the quick path; the others come in the next round."""

Place = tuple[int, list[int]]
"""A row and columns of it."""

Demands = tuple[Demand, ...]
Distances = NDArray[np.float64]


class CurrentPod(NamedTuple):
    """The pod that is being served."""

    demands: tuple[Demand, ...]
    eligible: Eligible
    own: Place | None
    """The GPUs that are held for it."""
    requests: Requests = NO_REQUESTS


class LineRound:
    """A copy of the matrix, on which room is taken and GPUs are held as one pod after another is served."""

    def __init__(self, cluster: ClusterLedger, queue: Sequence[str], rows: Rows | None) -> None:
        self._cluster = cluster
        self._matrix: Matrix = cluster.matrix.copy()
        self._quick = rows is not None
        self._holds = _earlier(cluster, queue)
        """Holds of the pods that have not been served yet."""
        self._held_rows = frozenset(row for row, _ in self._holds.values())
        self._behind = np.zeros_like(self._matrix.held)
        """How many of them hold each GPU."""
        for row, columns in self._holds.values():
            self._count(self._behind, row, columns, 1)
        self._matrix.held[:] = self._behind
        self._spoken = np.zeros(self._behind.shape, np.bool_)
        """GPUs of which a woken pod takes a part: they are not held in the same round."""
        every = np.arange(self._matrix.rows, dtype=np.int32)
        among = every if rows is None else np.unique(rows[rows >= 0])
        held = np.array(sorted(self._held_rows), np.int32)
        self._among = frozenset(among.tolist()) if self._quick else None
        self._room = RowCache(among, self._fits_now)
        self._room_behind = RowCache(held, self._fits_if_given_way)
        self._open_cards = RowCache(every, self._missing_on_open)
        self._cards_behind = RowCache(every, self._missing_if_given_way)
        self._all = (self._room, self._room_behind, self._open_cards, self._cards_behind)
        self._largest = self._largest_free(among)
        self._frees = sorted((self._most_free(hold), uid) for uid, hold in self._holds.items())
        self._searches = 0

    def comes(self, uid: str) -> Place | None:
        """Begins with this pod. Returns the GPUs held for it, which no longer count as held behind."""
        own = self._holds.pop(uid, None)
        if own is not None:
            row, columns = own
            self._count(self._behind, row, columns, -1)
            self._changed(row)
        return own

    def find_room(self, pod: CurrentPod) -> int | None:
        """Returns the row where it fits: that of its own hold, or the best, or else one where a hold gives
        way.
        """
        demands = pod.demands
        if pod.own is not None and self._fits_own(pod, pod.own[0]):
            return pod.own[0]
        if _least(demands, most=True) <= self._largest:
            row = self._best(pod, self._room)
            if row is not None:
                return row
        if _least(demands) <= self._largest_behind():
            return self._best(pod, self._room_behind)
        return None

    def take(self, row: int, pod: CurrentPod) -> list[int]:
        """Takes the room for its demands on this node. Returns the columns of the GPUs, part by part."""
        window = self._at(row)
        filling = fill(window, pod.demands, self._open(window, pod.own, give_way=False))
        if not filling.fits[0]:
            filling = fill(window, pod.demands, self._open(window, pod.own, give_way=True))
        taken = [int(column[0]) for column in filling.taken]
        self._give_way(row, set(taken))
        self._matrix.free[:, row] = filling.free[:, 0]
        self._matrix.compute[:, row] = filling.compute[:, 0]
        self._matrix.unused[:, row] = filling.unused[:, 0]
        self._matrix.take_beside(row, pod.requests)
        self._spoken[taken, row] = True
        self._changed(row)
        if self._among is None or row in self._among:
            self._largest = self._largest_free(self._room.rows)
        return taken

    def let_go(self, own: Place) -> None:
        """Releases the GPUs that are held for it."""
        self._count(self._matrix.held, *own, -1)
        self._changed(own[0])

    def may_keep(self, pod: CurrentPod) -> bool:
        """Reports whether the GPUs that it holds will be enough once they have drained."""
        if pod.own is None:
            return False
        row, columns = pod.own
        if not self._may_go(pod, row):
            return False
        if len(pod.demands) == 1:
            demand, node = pod.demands[0], self._cluster.name(row)
            gpus, ledger = self._cluster.gpus(node), self._cluster.ledger(node)
            good = [_will_do(gpus[column], ledger.outside(gpus[column].uuid), demand) for column in columns]
            return sum(good) >= demand.count
        window = self._at(row)
        mine = np.zeros_like(window.unused)
        mine[columns] = True
        return bool(fill(window, pod.demands, mine, drained(window)).fits[0])

    def find_cards(self, pod: CurrentPod) -> Place | None:
        """Finds GPUs to hold, all that it needs or none: a part of them would stay idle for nothing.

        They are on the node where least is missing now. GPUs that are held for pods behind come last.
        """
        self._searches += 1
        if self._quick and self._searches > _MOST_SEARCHES:
            return None
        for distances, give_way in ((self._open_cards, False), (self._cards_behind, True)):
            missing = distances.about(pod.demands)
            if pod.eligible is not None:
                missing = np.where(self._where(pod, distances.rows), missing, np.inf)
            if len(missing) and missing[best := int(missing.argmin())] < np.inf:
                return self._hold(int(distances.rows[best]), pod.demands, give_way=give_way)
        return None

    def _hold(self, row: int, demands: tuple[Demand, ...], *, give_way: bool) -> Place:
        window = self._at(row)
        columns = _nearest(window, demands, self._to_hold(window, give_way=give_way))
        self._give_way(row, set(columns))
        self._count(self._matrix.held, row, columns, 1)
        self._changed(row)
        return row, columns

    def _give_way(self, row: int, taken: set[int]) -> None:
        """Drops holds of pods behind where a pod in front takes one of their GPUs."""
        if row not in self._held_rows:
            return
        lost = [uid for uid, (at, held) in self._holds.items() if at == row and not taken.isdisjoint(held)]
        for uid in lost:
            columns = self._holds.pop(uid)[1]
            self._count(self._behind, row, columns, -1)
            self._count(self._matrix.held, row, columns, -1)

    def _fits_own(self, pod: CurrentPod, row: int) -> bool:
        if not self._may_go(pod, row) or (self._among is not None and row not in self._among):
            return False
        if _least(pod.demands, most=True) > int(self._matrix.free[:, row].max()):
            return False
        window = self._at(row)
        return any(
            room(window, pod.demands, self._open(window, pod.own, give_way=give_way))[0]
            for give_way in (False, True)
        )

    def _best(self, pod: CurrentPod, remembered: RowCache[Demands, np.bool_]) -> int | None:
        rows = remembered.rows[remembered.about(pod.demands)]
        allowed = rows[self._where(pod, rows)]
        return best_on_copy(self._cluster, self._matrix, pod.demands, allowed, pod.requests)

    def _may_go(self, pod: CurrentPod, row: int) -> bool:
        return bool(self._where(pod, np.array([row], np.int32))[0])

    def _where(self, pod: CurrentPod, rows: Rows) -> Bools:
        """Reports for each row whether the pod may go there."""
        if pod.eligible is None:
            return np.ones(len(rows), np.bool_)
        return pod.eligible.where(rows, self._matrix.added)

    def _fits_now(self, demands: tuple[Demand, ...], rows: Rows) -> Bools:
        window = Window(self._matrix, rows)
        return room(window, demands, self._open(window, None, give_way=False))

    def _fits_if_given_way(self, demands: tuple[Demand, ...], rows: Rows) -> Bools:
        window = Window(self._matrix, rows)
        return room(window, demands, self._open(window, None, give_way=True))

    def _missing_on_open(self, demands: tuple[Demand, ...], rows: Rows) -> Distances:
        window = Window(self._matrix, rows)
        return _missing(window, demands, self._to_hold(window, give_way=False))

    def _missing_if_given_way(self, demands: tuple[Demand, ...], rows: Rows) -> Distances:
        window = Window(self._matrix, rows)
        return _missing(window, demands, self._to_hold(window, give_way=True))

    def _to_hold(self, window: Window, *, give_way: bool) -> Bools:
        return self._open(window, None, give_way=give_way) & ~self._spoken.take(window.places, axis=1)

    def _open(self, window: Window, own: Place | None, *, give_way: bool) -> Bools:
        """Returns GPUs that are held for no pod in front, nor for one behind unless those holds are to give
        way.
        """
        held = window.held
        if give_way:
            held = np.subtract(held, self._behind.take(window.places, axis=1))
        open_: Bools = held_less(window, held, own) == 0
        return open_

    def _at(self, row: int) -> Window:
        return Window(self._matrix, np.array([row], np.int32))

    def _count(self, counts: NDArray[np.int16], row: int, columns: Collection[int], by: int) -> None:
        for column in columns:
            counts[column, row] += by

    def _changed(self, row: int) -> None:
        for remembered in self._all:
            remembered.changed(row)

    def _largest_free(self, rows: Rows) -> int:
        free = self._matrix.free
        return int((free[:, rows] if self._quick else free).max(initial=0))

    def _largest_behind(self) -> int:
        """Returns an upper bound of what is free on GPUs held for pods behind; -1 if there are none."""
        while self._frees and self._frees[-1][1] not in self._holds:
            self._frees.pop()
        return self._frees[-1][0] if self._frees else -1

    def _most_free(self, hold: Place) -> int:
        return max(int(self._matrix.free[column, hold[0]]) for column in hold[1])


def _earlier(cluster: ClusterLedger, queue: Sequence[str]) -> dict[str, Place]:
    """Returns the holds of the pods in line, as far as their GPUs still exist."""
    held = cluster.holds()
    places = ((uid, cluster.held_places(uid)) for uid in queue if uid in held)
    return {uid: place for uid, place in places if place is not None and len(place[1]) == len(held[uid][1])}


def _least(demands: Sequence[Demand], *, most: bool = False) -> int:
    """Returns bytes without which the smallest (or largest) part fits on no GPU; 0 if that depends."""
    parts = [
        demand.per_card(0) if demand.memory is not None and demand.memory.percent is None else 0
        for demand in demands
    ]
    return (max if most else min)(parts, default=0)


def _will_do(gpu: GPU, outside: int, demand: Demand) -> bool:
    """Reports whether it fits once every grant on the GPU has ended; what is held outside may never end."""
    return gpu.healthy and demand.accepts(gpu) and demand.per_card(gpu.memory) <= gpu.memory - outside


def _missing(window: Window, demands: tuple[Demand, ...], open_: Bools) -> Distances:
    """Returns, by node, the bytes that others must release before the demands fit; infinite if they never
    will.
    """
    if len(demands) != 1:
        fits = fill(window, demands, open_, drained(window)).fits
        free = np.where(open_, window.free, 0).sum(axis=0)
        return np.where(fits, -free.astype(np.float64), np.inf)
    return np.where(*_distances(window, demands[0], open_), np.inf)


def _distances(window: Window, demand: Demand, open_: Bools) -> tuple[Bools, Distances]:
    """Returns, by node, whether enough of its GPUs will do, and what is missing on the nearest of them."""
    part = want(demand, window)
    fit = part.fits(*drained(window)) & open_
    missing = _missing_by_card(window, demand, fit)
    nearest = missing.min(axis=0) if part.count == 1 else np.sort(missing, axis=0)[: part.count].sum(axis=0)
    return enough(fit, part.count), nearest


def _missing_by_card(window: Window, demand: Demand, fit: Bools) -> Distances:
    need = want(demand, window).needed(window.size)
    return np.where(fit, np.maximum(need - window.free, 0).astype(np.float64), np.inf)


def _nearest(window: Window, demands: tuple[Demand, ...], open_: Bools) -> list[int]:
    """Returns the columns, on the only node of the window, of the GPUs on which least is missing."""
    if len(demands) != 1:
        filling = fill(window, demands, open_, drained(window))
        return sorted({int(column[0]) for column in filling.taken})
    demand = demands[0]
    fit = want(demand, window).fits(*drained(window)) & open_
    missing = _missing_by_card(window, demand, fit)[:, 0]
    return sorted(int(column) for column in missing.argsort(kind="stable")[: demand.count])

"""Tables what pods hold on every GPU of the cluster, by rank: where would room be if the lowest were evicted?

To find the victims on a node takes much longer than to see that evictions there make no difference. So all
nodes are tested at once, with one table, and only those that could be opened are searched one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import enough, want
from cotenant.kube.scheduling.filling import CardAmounts, fill
from cotenant.kube.scheduling.matrix import Bools, Rows, Window
from cotenant.kube.scheduling.scan import held_without

STAYS = 2**62
"""The rank of a pod that is never evicted."""
LEAVES = -(2**62)
"""The rank of a pod that terminates anyway."""

_ALL = 100
"""Percent of compute that goes with a whole card."""

Ints = NDArray[np.int64]


class Tenants:
    """A table of all shares. It is filled node by node by `add`, and then asked."""

    def __init__(self, cluster: ClusterLedger) -> None:
        self._cluster = cluster
        self._shares = array("q")

    def add(self, node: str, rank: Callable[[str], int]) -> None:
        """Adds what is charged on a node. `rank` of a pod, by UID: its priority, or one of the two above."""
        cluster, shares = self._cluster, self._shares
        row = int(cluster.rows([node])[0])
        columns = {gpu.uuid: column for column, gpu in enumerate(cluster.gpus(node))}
        for uid in cluster.pods_on(node):
            charged, level = cluster.charged(uid), rank(uid)
            for slot in charged[1].slots if charged else ():
                for share in slot.shares:
                    column = columns.get(share.uuid)
                    if column is not None:
                        compute = _ALL if share.whole else share.compute or 0
                        shares.extend((column, row, level, share.memory, compute))

    def done(self) -> None:
        """Ends the filling: all nodes are in it."""
        table = np.frombuffer(self._shares, np.int64).reshape(-1, 5)
        self._column, self._row, self._rank, self._memory, self._compute = table.T.copy()

    @property
    def lowest(self) -> int:
        """Returns the least priority of all pods that could be evicted; STAYS if none could."""
        return int(self._rank[self._rank > LEAVES].min(initial=STAYS))

    def openable(self, demands: Sequence[Demand], below: int, rows: Rows, without: Collection[str]) -> Rows:
        """Returns those of the rows where the demands fit once all pods up to some rank have ended: the
        lowest such rank below `below`. First come those where most is free already.

        What is held for the pods `without` (UIDs) does not count: the pod itself, and those behind it.
        """
        theirs = self._rank < below
        touched = np.zeros(self._cluster.matrix.rows, np.bool_)
        touched[self._row[theirs]] = True
        rows = rows[touched[rows]]
        if not len(rows):
            return rows
        window = Window(self._cluster.matrix, rows)
        open_ = held_without(self._cluster, without).take(rows, axis=1) == 0
        levels = np.unique(self._rank[theirs])
        low, high = 0, len(levels) - 1
        fits = self._fit(window, demands, int(levels[high]), open_)
        while low < high and fits.any():
            middle = (low + high) // 2
            found = self._fit(window, demands, int(levels[middle]), open_)
            if found.any():
                fits, high = found, middle
            else:
                low = middle + 1
        most = np.where(open_, window.free, 0).max(axis=0)[fits]
        return rows[fits][np.argsort(-most, kind="stable")]

    def _fit(self, window: Window, demands: Sequence[Demand], level: int, open_: Bools) -> Bools:
        cards = self._after(window, level)
        if len(demands) != 1:
            return fill(window, demands, open_, cards).fits
        part = want(demands[0], window)
        return enough(part.fits(*cards) & open_, part.count)

    def _after(self, window: Window, level: int) -> CardAmounts:
        """The cards when everybody up to this rank has ended."""
        left = self._rank > level
        memory = self._summed(left, self._memory).take(window.places, axis=1)
        compute = self._summed(left, self._compute).take(window.places, axis=1)
        grants = self._summed(left, None).take(window.places, axis=1)
        return CardAmounts(
            np.maximum(window.emptied - memory, 0),
            np.maximum(_ALL - compute, 0).astype(np.int8),
            window.clean & (grants == 0),
        )

    def _summed(self, which: Bools, what: Ints | None) -> Ints:
        """By card, of those shares; how many there are if it is not said what."""
        columns, rows = self._cluster.matrix.free.shape[0], self._cluster.matrix.rows
        places = self._column[which] * rows + self._row[which]
        weights = None if what is None else what[which]
        return np.bincount(places, weights, columns * rows).astype(np.int64).reshape(columns, rows)

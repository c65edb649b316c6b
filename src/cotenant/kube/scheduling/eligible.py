"""Keeps on which nodes a waiting pod may be placed, GPUs aside: where it was refused, and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.matrix import Bools, Rows


@dataclass(frozen=True, slots=True, eq=False)
class EligibleNodes:
    """The nodes that existed at some moment, and which of them the pod may go to. It may go to every node
    that has arrived since, also if that has the row of one that is gone.
    """

    mask: Bools
    """By row of the matrix: whether the pod may go there."""
    arrivals: int
    """How many nodes had arrived then (`Matrix.arrivals`)."""

    def where(self, rows: Rows, added: NDArray[np.int64]) -> Bools:
        """Reports for each row whether the pod may go there; `added` is that of the matrix."""
        may: Bools = added[rows] > self.arrivals
        known = rows < len(self.mask)
        may[known] |= self.mask[rows[known]]
        return may


Eligible: TypeAlias = EligibleNodes | None
"""None: the pod may go anywhere."""


def only(cluster: ClusterLedger, rows: Rows | None) -> Eligible:
    """Returns the nodes with these rows; None if the pod may go anywhere."""
    if rows is None:
        return None
    mask = np.zeros(cluster.matrix.rows, np.bool_)
    mask[rows[rows >= 0]] = True
    return EligibleNodes(mask, cluster.matrix.arrivals)


def rows_of(cluster: ClusterLedger, eligible: Eligible) -> Rows:
    """Returns the rows of the nodes that exist and that the pod may go to."""
    added = cluster.matrix.added
    rows = np.flatnonzero(added[: cluster.matrix.rows]).astype(np.int32)
    return rows if eligible is None else rows[eligible.where(rows, added)]


def no_wider(one: Eligible, other: Eligible) -> bool:
    """Reports whether the other may go wherever this one may."""
    if one is None or other is None:
        return other is None
    return one.arrivals >= other.arrivals and np.array_equal(one.mask, other.mask)

"""Keeps on which nodes a waiting pod may be placed, GPUs aside: where it was refused, and new ones."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.matrix import Bools, Rows

Eligible: TypeAlias = Bools | None
"""By row of the matrix: whether the pod may go there. None, and rows beyond the end: it may."""


def only(cluster: ClusterLedger, rows: Rows | None) -> Eligible:
    """Returns the mask of these rows; None if the pod may go anywhere."""
    if rows is None:
        return None
    mask = np.zeros(cluster.matrix.rows, np.bool_)
    mask[rows[rows >= 0]] = True
    return mask


def rows_of(cluster: ClusterLedger, eligible: Eligible) -> Rows:
    """Returns the rows that the pod may go to, with nodes that came later, beyond the mask's end."""
    if eligible is None:
        return np.arange(cluster.matrix.rows, dtype=np.int32)
    later = np.arange(len(eligible), cluster.matrix.rows, dtype=np.int32)
    return np.concatenate((np.flatnonzero(eligible).astype(np.int32), later))


def no_wider(one: Eligible, other: Eligible) -> bool:
    """Reports whether the other may go wherever this one may."""
    if one is None or other is None:
        return other is None
    return np.array_equal(one, other)

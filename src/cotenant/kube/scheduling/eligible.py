"""Which nodes a waiting pod may go to, GPUs aside: those that it was refused on, and new ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.matrix import Rows


def only(cluster: ClusterLedger, rows: Rows | None) -> NDArray[np.bool_] | None:
    """By row; None if it may go anywhere."""
    if rows is None:
        return None
    mask = np.zeros(cluster.matrix.rows, np.bool_)
    mask[rows[rows >= 0]] = True
    return mask


def rows_of(cluster: ClusterLedger, eligible: NDArray[np.bool_] | None) -> Rows:
    """The rows it may go to. Nodes that came later, beyond the mask's end, are among them."""
    if eligible is None:
        return np.arange(cluster.matrix.rows, dtype=np.int32)
    later = np.arange(len(eligible), cluster.matrix.rows, dtype=np.int32)
    return np.concatenate((np.flatnonzero(eligible).astype(np.int32), later))


def no_wider(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> bool:
    """Whether the other may go wherever this one may."""
    if one is None or other is None:
        return other is None
    return np.array_equal(one, other)

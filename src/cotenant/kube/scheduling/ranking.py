"""Ranks the nodes on which a pod fits.

As the core ranks the GPUs of one machine: by the pod's policy, then the least left over on the GPU, then the
smaller GPU; then, of nodes that are equal so far, the fuller one (`spread`: the emptier).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.fragmentation import Typical
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import want
from cotenant.kube.scheduling.filling import fill
from cotenant.kube.scheduling.fragmentation import increase_by_card, increase_by_node
from cotenant.kube.scheduling.kinds import NOWHERE
from cotenant.kube.scheduling.matrix import Bytes, Matrix, Rows, Window
from cotenant.kube.scheduling.scan import Own, open_cards

BEST = 10
_AT_A_TIME = 1024


def scores(cluster: ClusterLedger, uid: str, demands: Sequence[Demand], rows: Rows) -> NDArray[np.int64]:
    """Returns 10 for the best node, 9 to 0 for the others by rank, 0 where it does not fit."""
    result = np.zeros(len(rows), np.int64)
    known = np.flatnonzero(rows >= 0)
    if len(known) and demands:
        there = rows[known]
        keys = _all_keys(cluster.matrix, cluster.typical, demands, there, cluster.held_places(uid))
        order = _in_order(keys, there)
        order = known[order[: np.count_nonzero(keys[0] != NOWHERE)]]
        result[order] = by_rank(len(order))
    return result


@lru_cache(maxsize=64)
def by_rank(count: int) -> NDArray[np.int64]:
    """10, then 9 down to 0 in even steps."""
    result = np.full(count, BEST, np.int64)
    if count > 1:
        result[1:] = 9 - np.arange(count - 1) * 10 // (count - 1)
    result.flags.writeable = False
    return result


def ranked(
    matrix: Matrix, typical: Typical, demands: Sequence[Demand], rows: Rows, own: Own
) -> NDArray[np.intp]:
    """Returns positions in `rows`, best first, of nodes where the pod fits; ties go to the smaller row."""
    return _in_order(_all_keys(matrix, typical, demands, rows, own), rows)


def _in_order(keys: list[Bytes], rows: Rows) -> NDArray[np.intp]:
    by: tuple[NDArray[Any], ...] = (rows, *reversed(keys))
    order: NDArray[np.intp] = np.lexsort(by)
    return order


def _all_keys(
    matrix: Matrix, typical: Typical, demands: Sequence[Demand], rows: Rows, own: Own
) -> list[Bytes]:
    """Of most rows, all are looked at: they need not be copied, and then not all keys count."""
    most = 2 * len(rows) > matrix.rows
    looked = range(matrix.rows) if most else rows
    parts = [
        _keys(Window(matrix, looked[start : start + _AT_A_TIME]), typical, demands, own)
        for start in range(0, len(looked), _AT_A_TIME)
    ]
    keys = parts[0] if len(parts) == 1 else [np.concatenate(each) for each in zip(*parts, strict=True)]
    return [key.take(rows) for key in keys] if most else keys


def _keys(window: Window, typical: Typical, demands: Sequence[Demand], own: Own) -> list[Bytes]:
    """By node, in the order in which they count; the least is the best, the first is NOWHERE where it does
    not fit.
    """
    single = len(demands) == 1 and demands[0].count == 1
    return (_of_one_card if single else _of_several)(window, typical, demands, own)


def _of_one_card(window: Window, typical: Typical, demands: Sequence[Demand], own: Own) -> list[Bytes]:
    """The best card of each node, exactly as the core ranks it."""
    demand = demands[0]
    part = want(demand, window)
    fit = part.fits(window.free, window.compute, window.unused)
    open_ = open_cards(window, own)
    if open_ is not None:
        fit &= open_
    after: Bytes = np.zeros_like(window.free) if part.whole else window.free - part.need
    by_card = [after, window.size]
    if demand.placement == "frag":
        by_card.insert(0, increase_by_card(window, part, after, typical))
    elif demand.placement == "spread":
        by_card.insert(0, -window.free)
    keys = list[Bytes]()
    for at, key in enumerate(by_card, 1):
        allowed = np.where(fit, key, NOWHERE)
        best: Bytes = np.minimum.reduce(allowed)
        keys.append(best)
        if at < len(by_card):
            fit &= allowed == best
    return [*keys, _on_node(window.free, demand)]


def _of_several(window: Window, typical: Typical, demands: Sequence[Demand], own: Own) -> list[Bytes]:
    """The node as a whole, with all parts on the cards that best fit gives them."""
    demand = demands[0]
    filling = fill(window, demands, open_cards(window, own))
    keys = [_on_node(window.free, demand)]
    if demand.placement != "spread":
        keys = [filling.left, filling.sizes, *keys]
    if demand.placement == "frag":
        keys.insert(0, increase_by_node(window, filling, typical))
    keys[0] = np.where(filling.fits, keys[0], NOWHERE)
    return keys


def _on_node(free: Bytes, demand: Demand) -> Bytes:
    """What is free on the node in all, before: the pod takes the same of every node."""
    total: Bytes = np.add.reduce(free)
    return -total if demand.placement == "spread" else total

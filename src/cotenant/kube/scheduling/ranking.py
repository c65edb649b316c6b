"""Ranks the nodes on which a pod fits by the pod's policy: the one choice among nodes.

`frag`: the node that costs least (`policy.py`). `binpack` and `spread` as the core ranks the GPUs of one
machine: the least left over on the GPU (`spread`: the most free), then the smaller GPU; then, of nodes that
are equal so far, the fuller one (`spread`: the emptier).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import want
from cotenant.kube.scheduling.filling import fill
from cotenant.kube.scheduling.kept_costs import AskingKind, costs_at
from cotenant.kube.scheduling.kinds import NOWHERE
from cotenant.kube.scheduling.matrix import Bools, Bytes, Matrix, Own, Rows, Window, open_cards

BEST = 10
POINTS = np.arange(BEST, 0, -1)
"""By rank; all others have none."""
_MOST_RANKED = 64
"""Nodes that are ranked on a copy. With more, which one a pod gets makes no difference to the others."""
_TRIES = 4
"""Names that are looked for before all are looked up."""


def scores(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    rows: Rows,
    requests: Requests = NO_REQUESTS,
) -> NDArray[np.int64]:
    """Returns 10 for the best node, 9 to 1 for those after it, 0 for all others and where it does not fit."""
    result = np.zeros(len(rows), np.int64)
    known = np.flatnonzero(rows >= 0)
    if len(known) and demands:
        there = rows[known]
        first = _first(_keys(cluster, uid, demands, requests, there), there, cluster)
        result[known[first]] = POINTS[: len(first)]
    return result


def scores_without_gpu(cluster: ClusterLedger, rows: Rows, requests: Requests) -> NDArray[np.int64]:
    """Returns the scores for a pod without GPU: 10 for all nodes without GPUs, 9 to 0 for the others by how
    much GPU memory it would strand there. If all have GPUs, the best of them gets 10.
    """
    result = np.full(len(rows), BEST, np.int64)
    at = np.flatnonzero(rows >= 0)
    at = at[cluster.matrix.cards[rows[at]] > 0]
    if len(at):
        there = rows[at]
        first = _first(_keys(cluster, "", (), requests, there), there, cluster)
        result[at] = 0
        points = POINTS if len(at) == len(rows) else POINTS[1:]
        result[at[first[: len(points)]]] = points[: len(first)]
    return result


def by_place(scores: NDArray[np.int64]) -> dict[int, int]:
    """Returns by their places those that are not 0."""
    (at,) = scores.nonzero()
    return dict(zip(at.tolist(), scores[at].tolist(), strict=True))


def best(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    rows: Rows,
    requests: Requests = NO_REQUESTS,
) -> int | None:
    """Returns the row of the node to which `scores` gives most; None if the pod fits none of them. A pod
    without demands goes where it is in the way of GPUs least.
    """
    if not len(rows):
        return None
    keys = _keys(cluster, uid, demands, requests, rows)
    at = _best(keys)
    return int(min(rows[at].tolist(), key=cluster.name)) if keys[0][at[0]] != NOWHERE else None


def best_named(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    names: Sequence[str],
    requests: Requests = NO_REQUESTS,
) -> str | None:
    """Returns the name of the node to which `scores` gives most; None if the pod fits none of them.

    If many nodes are named, the best of all nodes is most often among them: it is found first and then looked
    for, since to look up thousands of names takes much longer than to rank as many nodes.
    """
    if 0 < cluster.matrix.rows < 2 * len(names):
        keys = _keys_of_all(cluster, uid, demands, requests)
        at = _best(keys)
        if keys[0][at[0]] == NOWHERE:
            return None
        for name in nsmallest(_TRIES, map(cluster.name, at.tolist())):
            if name in names:
                return name
    rows = cluster.rows(names)
    row = best(cluster, uid, demands, rows[rows >= 0], requests)
    return None if row is None else cluster.name(row)


def best_on_copy(
    cluster: ClusterLedger, matrix: Matrix, demands: Sequence[Demand], rows: Rows, requests: Requests
) -> int | None:
    """Returns the best of these rows, where the pod fits on a copy of the ledger's matrix; None if there are
    none. Only the first are ranked; ties go to the smaller row.
    """
    rows = rows[:_MOST_RANKED]
    if len(rows) < 2:
        return int(rows[0]) if len(rows) else None
    if _by_costs(demands):
        kind = _kind(cluster, demands, requests)
        keys = [costs_at(matrix, cluster.learned.tables, kind, rows)]
    else:
        keys = _by_size(Window(matrix, rows), demands, None)
    return int(rows[_best(keys)].min())


def _by_costs(demands: Sequence[Demand]) -> bool:
    return not demands or demands[0].placement == "frag"


def _kind(cluster: ClusterLedger, demands: Sequence[Demand], requests: Requests) -> AskingKind:
    models = [model for demand in demands for model in demand.models]
    reserved = cluster.reserved(models) if demands else frozenset[str]()
    return AskingKind(tuple(demands), requests, reserved)


def _keys(
    cluster: ClusterLedger, uid: str, demands: Sequence[Demand], requests: Requests, rows: Rows
) -> list[Bytes]:
    """By node, in the order in which they count; the least is the best, the first is NOWHERE where it does
    not fit.
    """
    matrix = cluster.matrix
    if not _by_costs(demands) and 2 * len(rows) <= matrix.rows:
        return _by_size(Window(matrix, rows), demands, cluster.held_places(uid))
    return [key.take(rows) for key in _keys_of_all(cluster, uid, demands, requests)]


def _keys_of_all(
    cluster: ClusterLedger, uid: str, demands: Sequence[Demand], requests: Requests
) -> list[Bytes]:
    """The same for all rows, without a copy of the matrix. Callers must not change them."""
    matrix, own = cluster.matrix, cluster.held_places(uid)
    if not _by_costs(demands):
        return _by_size(Window(matrix, None), demands, own)
    kind, learned = _kind(cluster, demands, requests), cluster.learned
    costs = cluster.costs.about(kind)[: matrix.rows]
    if own is not None:  # what is held for the pod itself makes a difference on that node alone
        row = np.array([own[0]], np.int32)
        costs = costs.copy()
        costs[row] = costs_at(matrix, learned.tables, kind, row, learned.losses(), own)
    return [costs]


def _best(keys: Sequence[Bytes]) -> NDArray[np.intp]:
    """Returns the places of those that are best, in their order."""
    at: NDArray[np.intp] = np.flatnonzero(keys[0] == keys[0].min())
    for key in keys[1:]:
        at = at[key[at] == key[at].min()]
    return at


def _first(keys: list[Bytes], rows: Rows, cluster: ClusterLedger) -> NDArray[np.intp]:
    """Returns the places of the first nodes by rank, without those where the pod does not fit. Of those that
    are equally good, the first by name is first: the row of a node only says when it arrived.
    """
    most = len(POINTS)
    least, some = keys[0], None
    if len(least) > most:
        some = np.flatnonzero(least <= np.partition(least, most - 1)[most - 1])
        keys, rows = [key[some] for key in keys], rows[some]
    by: tuple[NDArray[Any], ...] = (rows, *reversed(keys))
    order: NDArray[np.intp] = np.lexsort(by)
    order = order[: np.count_nonzero(keys[0] != NOWHERE)]
    if len(order):
        equal = _best(keys)
        first = min(equal.tolist(), key=lambda at: cluster.name(int(rows[at])))
        where = int(np.flatnonzero(order == first)[0])
        order[0], order[where] = order[where], order[0]
    order = order[:most]
    return order if some is None else some[order]


def _by_size(window: Window, demands: Sequence[Demand], own: Own) -> list[Bytes]:
    """The keys of `binpack` and `spread`."""
    open_ = open_cards(window, own)
    single = len(demands) == 1 and demands[0].count == 1
    return (_of_one_card if single else _of_several)(window, demands, open_)


def _of_one_card(window: Window, demands: Sequence[Demand], open_: Bools | None) -> list[Bytes]:
    """The best card of each node, exactly as the core ranks it."""
    demand = demands[0]
    part = want(demand, window)
    fit = part.fits(window.free, window.compute, window.unused)
    if open_ is not None:
        fit &= open_
    after: Bytes = np.zeros_like(window.free) if part.whole else window.free - part.need
    by_card = [after, window.size]
    if demand.placement == "spread":
        by_card.insert(0, -window.free)
    keys = list[Bytes]()
    for at, key in enumerate(by_card, 1):
        allowed = np.where(fit, key, NOWHERE)
        best: Bytes = np.minimum.reduce(allowed)
        keys.append(best)
        if at < len(by_card):
            fit &= allowed == best
    return [*keys, _on_node(window.free, demand)]


def _of_several(window: Window, demands: Sequence[Demand], open_: Bools | None) -> list[Bytes]:
    """The node as a whole, with all parts on the cards that best fit gives them."""
    filling = fill(window, demands, open_)
    keys = [_on_node(window.free, demands[0])]
    if demands[0].placement != "spread":
        keys = [filling.left, filling.sizes, *keys]
    keys[0] = np.where(filling.fits, keys[0], NOWHERE)
    return keys


def _on_node(free: Bytes, demand: Demand) -> Bytes:
    """What is free on the node in all, before: the pod takes the same of every node."""
    total: Bytes = np.add.reduce(free)
    return -total if demand.placement == "spread" else total

"""Ranks the nodes on which a pod fits by the pod's policy: the one choice among nodes.

`frag`: the node that costs least (`policy.py`). `binpack` and `spread` as the core ranks the GPUs of one
machine: the least left over on the GPU (`spread`: the most free), then the smaller GPU; then, of nodes that
are equal so far, the fuller one (`spread`: the emptier).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import want
from cotenant.kube.scheduling.filling import fill
from cotenant.kube.scheduling.kinds import NOWHERE
from cotenant.kube.scheduling.loss_tables import LossTables, NodeLosses, SpareRows
from cotenant.kube.scheduling.matrix import Bools, Bytes, Matrix, Rows, Window
from cotenant.kube.scheduling.policy import costs
from cotenant.kube.scheduling.scan import Own, open_cards

BEST = 10
_AT_A_TIME = 2048
_MOST_RANKED = 64
"""Nodes that are ranked on a copy. With more, which one a pod gets makes no difference to the others."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A pod that asks for a node, and what its policy knows."""

    demands: Sequence[Demand]
    requests: Requests
    own: Own
    tables: LossTables
    losses: NodeLosses | None
    """What is lost on each row now; None if that is to be measured."""
    reserved: Bools | None
    """By kind of card, whether it is kept for others."""

    @property
    def placement(self) -> str:
        return self.demands[0].placement if self.demands else "frag"


def scores(
    cluster: ClusterLedger,
    uid: str,
    demands: Sequence[Demand],
    rows: Rows,
    requests: Requests = NO_REQUESTS,
) -> NDArray[np.int64]:
    """Returns 10 for the best node, 9 to 0 for the others by rank, 0 where it does not fit."""
    result = np.zeros(len(rows), np.int64)
    known = np.flatnonzero(rows >= 0)
    if len(known) and demands:
        there = rows[known]
        keys = _all_keys(cluster.matrix, _asking(cluster, uid, demands, requests), there)
        order = _in_order(keys, there)[: np.count_nonzero(keys[0] != NOWHERE)]
        _first_by_name(cluster, order, keys, there)
        result[known[order]] = by_rank(len(order))
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
        keys = _all_keys(cluster.matrix, _asking(cluster, "", (), requests), there)
        order = _in_order(keys, there)
        result[at[order]] = by_rank(len(at)) if len(at) == len(rows) else by_rank(len(at) + 1)[1:]
    return result


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
    keys = _all_keys(cluster.matrix, _asking(cluster, uid, demands, requests), rows)
    least = int(keys[0].min())
    if least == NOWHERE:
        return None
    at = np.flatnonzero(keys[0] == least)
    for key in keys[1:]:
        at = at[key[at] == key[at].min()]
    return int(min(rows[at].tolist(), key=cluster.name))


def best_on_copy(
    cluster: ClusterLedger, matrix: Matrix, demands: Sequence[Demand], rows: Rows, requests: Requests
) -> int | None:
    """Returns the best of these rows, where the pod fits on a copy of the ledger's matrix; None if there are
    none. Only the first are ranked; ties go to the smaller row.
    """
    rows = rows[:_MOST_RANKED]
    if len(rows) < 2:
        return int(rows[0]) if len(rows) else None
    asking = Asking(demands, requests, None, cluster.learned.tables, None, _reserved(cluster, demands))
    return int(rows[_in_order(_all_keys(matrix, asking, rows), rows)[0]])


@lru_cache(maxsize=64)
def by_rank(count: int) -> NDArray[np.int64]:
    """10, then 9 down to 0 in even steps."""
    result = np.full(count, BEST, np.int64)
    if count > 1:
        result[1:] = 9 - np.arange(count - 1) * 10 // (count - 1)
    result.flags.writeable = False
    return result


def _asking(cluster: ClusterLedger, uid: str, demands: Sequence[Demand], requests: Requests) -> Asking:
    own, learned = cluster.held_places(uid), cluster.learned
    if demands and demands[0].placement != "frag":
        return Asking(demands, requests, own, learned.tables, None, None)
    return Asking(demands, requests, own, learned.tables, learned.losses(), _reserved(cluster, demands))


def _reserved(cluster: ClusterLedger, demands: Sequence[Demand]) -> Bools | None:
    models = [model for demand in demands for model in demand.models]
    reserved = cluster.reserved(models) if demands else frozenset[str]()
    if not reserved:
        return None
    return np.array([False, *(gpu.model in reserved for gpu in cluster.matrix.kinds.gpus)])


def _first_by_name(
    cluster: ClusterLedger, order: NDArray[np.intp], keys: Sequence[Bytes], rows: Rows
) -> None:
    """Puts the first by name to the front of those that are equally good: the row of a node only says when it
    arrived.
    """
    equal = np.ones(len(order), np.bool_)
    for key in keys:
        ordered = key[order]
        equal &= ordered == ordered[:1]
    count = int(np.count_nonzero(equal))
    if count > 1:
        first = min(range(count), key=lambda at: cluster.name(int(rows[order[at]])))
        order[0], order[first] = order[first], order[0]


def _in_order(keys: list[Bytes], rows: Rows) -> NDArray[np.intp]:
    by: tuple[NDArray[Any], ...] = (rows, *reversed(keys))
    order: NDArray[np.intp] = np.lexsort(by)
    return order


def _all_keys(matrix: Matrix, asking: Asking, rows: Rows) -> list[Bytes]:
    """Of most rows, all are looked at: they need not be copied, and then not all keys count."""
    most = 2 * len(rows) > matrix.rows
    looked = range(matrix.rows) if most else rows
    parts = [
        _keys(Window(matrix, looked[start : start + _AT_A_TIME]), asking)
        for start in range(0, len(looked), _AT_A_TIME)
    ]
    keys = parts[0] if len(parts) == 1 else [np.concatenate(each) for each in zip(*parts, strict=True)]
    return [key.take(rows) for key in keys] if most else keys


def _keys(window: Window, asking: Asking) -> list[Bytes]:
    """By node, in the order in which they count; the least is the best, the first is NOWHERE where it does
    not fit.
    """
    demands, open_ = asking.demands, open_cards(window, asking.own)
    if asking.placement == "frag":
        losses = asking.tables.measure(window) if asking.losses is None else asking.losses.at(window.rows)
        spare = SpareRows.less(window, asking.requests.cpu, asking.requests.memory)
        return [costs(asking.tables, losses, window, demands, open_, spare, asking.reserved)]
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

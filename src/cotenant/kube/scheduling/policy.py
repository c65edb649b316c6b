"""Decides by the policy `frag` what each node costs a pod: how much more free GPU memory is lost after it.

A part of a card goes to the card in use where least is lost, or to an unused one if the node then loses less;
several parts and whole cards go to those where least is left. That is the core's choice among the GPUs of one
machine (`core/placement.py`), for many nodes at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.demand_mask import DemandMask, want
from cotenant.kube.scheduling.filling import fill
from cotenant.kube.scheduling.kinds import NOWHERE
from cotenant.kube.scheduling.loss_tables import LossTables, Move, NodeLosses, SpareRows, reserve
from cotenant.kube.scheduling.matrix import Bools, Bytes, Window


def costs(
    tables: LossTables,
    losses: NodeLosses,
    window: Window,
    demands: Sequence[Demand],
    open_: Bools | None,
    spare: SpareRows,
    reserved: Bools | None,
) -> Bytes:
    """Returns the cost of each node in bytes, NOWHERE where the pod does not fit the GPUs.

    `losses`: what is lost now on the nodes of the window; `spare`: what they will have left beside their
    GPUs; `reserved`: by kind of card, whether it is kept for others.
    """
    if not demands:
        return tables.more(losses, (), spare)
    if len(demands) == 1 and demands[0].count == 1 and demands[0].memory is not None:
        return _of_one_part(tables, losses, window, demands[0], open_, spare, reserved)
    filling = fill(window, demands, open_)
    if not filling.fits.any():
        return np.full(window.width, NOWHERE, np.int64)
    nodes = np.arange(window.width)
    moves = [
        _move(tables, window.kind[column, nodes], *before, np.maximum(after, 0))
        for column, before, after in zip(filling.taken, filling.befores, filling.afters, strict=True)
    ]
    cost = tables.more(losses, moves, spare)
    if reserved is not None:
        for move in moves:
            cost += reserve(move.before - move.after, reserved.take(move.kind))
    return np.where(filling.fits, cost, NOWHERE)


def _move(tables: LossTables, kind: NDArray[np.int32], before: Bytes, unused: Bools, after: Bytes) -> Move:
    more = tables.lost_used(kind, after) - tables.lost(kind, before, unused)
    return Move(kind, before, unused, after, more)


def _of_one_part(
    tables: LossTables,
    losses: NodeLosses,
    window: Window,
    demand: Demand,
    open_: Bools | None,
    spare: SpareRows,
    reserved: Bools | None,
) -> Bytes:
    """Compares on each node the best card in use with the best unused one."""
    part = want(demand, window)
    fit = part.fits(window.free, window.compute, window.unused)
    if open_ is not None:
        fit &= open_
    best: Bytes = np.full(window.width, NOWHERE, np.int64)
    used, unused = fit & ~window.unused, fit & window.unused
    for which, by_card in (
        (False, _by_used_card(tables, losses, window, part, used, reserved)),
        (True, _by_unused_card(tables, window, demand, unused, reserved)),
    ):
        if by_card is None:
            continue
        column = by_card.argmin(axis=0)
        nodes = np.arange(window.width)
        least = by_card[column, nodes]
        there = np.flatnonzero(least != NOWHERE)
        some, left = losses, spare
        if len(there) < window.width:
            column, nodes, least = column[there], there, least[there]
            some, left = losses.at(there), SpareRows(spare.cpu[there], spare.memory[there])
        before = window.free[column, nodes]
        taken = part.need if isinstance(part.need, int) else part.need[column, nodes]
        was_unused = np.full(len(nodes), which)
        move = Move(window.kind[column, nodes], before, was_unused, before - taken, least)
        best[nodes] = np.minimum(best[nodes], tables.more(some, (move,), left))
    return best


def _by_used_card(
    tables: LossTables,
    losses: NodeLosses,
    window: Window,
    part: DemandMask,
    fit: Bools,
    reserved: Bools | None,
) -> Bytes | None:
    """Returns for each of these cards, which are in use, how much more is lost on it; None if there are no
    such cards.
    """
    at = np.flatnonzero(fit)
    if not len(at):
        return None
    free, kind = window.free.ravel()[at], window.kind.ravel()[at]
    after = free - (part.need if isinstance(part.need, int) else part.need.ravel()[at])
    more = tables.lost_used(kind, after) - losses.cards.ravel()[at]
    if reserved is not None:
        more += reserve(free - after, reserved.take(kind))
    by_card = np.full(fit.shape, NOWHERE, np.int64)
    by_card.ravel()[at] = more
    return by_card


def _by_unused_card(
    tables: LossTables, window: Window, demand: Demand, fit: Bools, reserved: Bools | None
) -> Bytes | None:
    """Returns the same for cards that nothing uses: it depends on their kind alone."""
    if not fit.any():
        return None
    gpus = window.matrix.kinds.gpus
    kind = np.arange(1 + len(gpus), dtype=np.int32)
    size = np.array([0, *(gpu.memory for gpu in gpus)], np.int64)
    need = np.array([0, *(demand.per_card(gpu.memory) for gpu in gpus)], np.int64)
    more = tables.lost_used(kind, np.maximum(size - need, 0)) - tables.lost_unused
    if reserved is not None:
        more += reserve(need, reserved)
    by_card: Bytes = np.where(fit, more.take(window.kind), NOWHERE)
    return by_card

"""Finds on which nodes a pod fits, and why not on the others, for the whole cluster at once."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import enough, want
from cotenant.kube.scheduling.filling import brand_new, fill
from cotenant.kube.scheduling.kinds import NO_CARD
from cotenant.kube.scheduling.matrix import Bools, Matrix, Own, Rows, Window, open_cards

__all__ = ["HOPEFUL", "Rows", "Verdict", "scan"]


class Verdict(enum.IntEnum):
    """Whether a pod fits a node's GPUs, and if not, why."""

    FITS = 0
    NO_CARDS = 1
    UNKNOWN_MODEL = 2
    """None of its GPUs has the model or UUID that is wished for."""
    TOO_BIG = 3
    """It would not fit even if all GPUs were healthy and unused."""
    NO_ROOM = 4
    HELD = 5
    """It would fit, but GPUs are held for pods ahead in the line."""


HOPEFUL = (
    Verdict.FITS,
    Verdict.HELD,
    Verdict.NO_ROOM,
    Verdict.TOO_BIG,
    Verdict.UNKNOWN_MODEL,
    Verdict.NO_CARDS,
)
"""From the most to the least hopeful."""

_FITS, _NO_ROOM = np.uint8(Verdict.FITS), np.uint8(Verdict.NO_ROOM)


def scan(cluster: ClusterLedger, uid: str, demands: Sequence[Demand], rows: Rows) -> NDArray[np.uint8]:
    """Returns a Verdict for each row; a row that is not known (-1) has no GPUs."""
    return judge(cluster.matrix, demands, rows, cluster.held_places(uid))


def judge(matrix: Matrix, demands: Sequence[Demand], rows: Rows, own: Own) -> NDArray[np.uint8]:
    """Returns the same as `scan`, on any matrix."""
    if not matrix.rows:
        return np.full(len(rows), Verdict.NO_CARDS, np.uint8)
    if 2 * len(rows) < matrix.rows:
        known = np.maximum(rows, 0)
        verdicts = _judge(Window(matrix, known), demands, own)
    else:
        verdicts = _judge(Window(matrix, None), demands, own)[rows]
    verdicts[rows < 0] = Verdict.NO_CARDS
    return verdicts


def has_room(cluster: ClusterLedger, demands: Sequence[Demand], rows: Rows, without: Collection[str]) -> bool:
    """Reports whether the pod fits on any of these nodes now; holds for these (UIDs) do not count."""
    open_ = held_without(cluster, without).take(rows, axis=1) == 0
    return bool(room(Window(cluster.matrix, rows), demands, open_).any())


def held_without(cluster: ClusterLedger, without: Collection[str]) -> NDArray[np.int16]:
    """Returns for how many pods each GPU is held, as the matrix has it, not counting these (UIDs)."""
    held = cluster.matrix.held.copy()
    for uid in without:
        own = cluster.held_places(uid)
        if own is not None:
            held[own[1], own[0]] -= 1
    return held


def room(window: Window, demands: Sequence[Demand], open_: Bools | None) -> Bools:
    """Reports for each node whether the pod fits now on the open GPUs; None means all."""
    if len(demands) != 1:
        return fill(window, demands, open_).fits
    part = want(demands[0], window)
    fit = part.fits(window.free, window.compute, window.unused)
    if open_ is not None:
        fit &= open_
    return enough(fit, part.count)


def _judge(window: Window, demands: Sequence[Demand], own: Own) -> NDArray[np.uint8]:
    open_ = open_cards(window, own)
    fits = room(window, demands, open_)
    verdicts = np.where(fits, _FITS, _NO_ROOM)
    if fits.all():
        return verdicts
    if open_ is not None:
        verdicts[room(window, demands, None) & ~fits] = Verdict.HELD
    refused = verdicts == Verdict.NO_ROOM
    verdicts[refused & ~_ever(window, demands)] = Verdict.TOO_BIG
    for demand in demands:
        accepts = want(demand, window).accepts
        if accepts is not None:
            verdicts[refused & ~enough(accepts, 1)] = Verdict.UNKNOWN_MODEL
    verdicts[window.cards == 0] = Verdict.NO_CARDS
    return verdicts


def _ever(window: Window, demands: Sequence[Demand]) -> Bools:
    """Reports for each node whether it would fit if all GPUs were healthy and unused."""
    if len(demands) == 1:
        part = want(demands[0], window)
        large = window.kind != NO_CARD if part.whole else window.size >= part.need
        return enough(large if part.accepts is None else large & part.accepts, part.count)
    return fill(window, demands, None, brand_new(window)).fits

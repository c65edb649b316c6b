"""Masks a demand over the matrix: on which GPUs one part of it may go, and what it takes there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.kinds import NO_CARD
from cotenant.kube.scheduling.matrix import Bools, Bytes, Percents, Window

_NOMINAL = 2**36
"""Bytes that a percentage is of, to order demands where GPUs differ."""


@dataclass(frozen=True, slots=True)
class DemandMask:
    """One demand, over the GPUs of a window."""

    count: int
    whole: bool
    need: int | Bytes
    """Bytes on a GPU; without meaning for whole GPUs."""
    compute: int
    accepts: Bools | None
    """None: its wishes allow every GPU."""

    def fits(self, free: Bytes, compute: Percents, unused: Bools) -> Bools:
        """Reports the same as `Room.fits`, for every GPU."""
        fit: Bools = unused.copy() if self.whole else free >= self.need
        if self.compute:
            fit &= compute >= self.compute
        if self.accepts is not None:
            fit &= self.accepts
        return fit

    def needed(self, size: Bytes) -> int | Bytes:
        return size if self.whole else self.need


def want(demand: Demand, window: Window) -> DemandMask:
    memory = demand.memory
    need: int | Bytes = 0
    if memory is not None:
        percent = memory.percent
        need = demand.per_card(0) if percent is None else window.matrix.kinds.needs(percent).take(window.kind)
    return DemandMask(demand.count, memory is None, need, demand.compute or 0, _accepts(demand, window))


def _accepts(demand: Demand, window: Window) -> Bools | None:
    accepts: Bools | None = None
    if demand.models:
        accepts = window.matrix.kinds.accepts(demand.models).take(window.kind)
    if demand.uuids:
        hashes = np.array([hash(uuid) for uuid in demand.uuids], np.int64)
        named = np.isin(window.uuid, hashes) & (window.kind != NO_CARD)
        accepts = named if accepts is None else accepts & named
    return accepts


def in_order(demands: Iterable[Demand]) -> list[Demand]:
    """Sorts demands as they are placed one after another: whole GPUs first, then those with wishes, then the
    larger.

    Everybody who asks whether a pod fits uses this order, so that all agree.
    """
    return sorted(demands, key=order_of)


def order_of(demand: Demand) -> tuple[object, ...]:
    return (
        demand.memory is not None,
        not demand.uuids,
        not demand.models,
        -demand.per_card(_NOMINAL),
        -demand.count,
        -(demand.compute or 0),
        demand.uuids,
        demand.models,
    )


def how_many(mask: Bools) -> NDArray[np.int16]:
    """Counts the GPUs of each node."""
    counts: NDArray[np.int16] = np.add.reduce(mask, axis=0, dtype=np.int16)
    return counts


def enough(mask: Bools, count: int) -> Bools:
    """Reports for each node whether it has at least this many GPUs."""
    result: Bools = np.logical_or.reduce(mask, axis=0) if count == 1 else how_many(mask) >= count
    return result

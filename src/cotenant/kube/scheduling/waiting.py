"""The pods that wait, in the order in which they are served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.matrix import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One pod in the line."""

    uid: str
    demands: tuple[Demand, ...]
    priority: int
    since: float
    """When it came, on the clock of `now`."""
    eligible: NDArray[np.bool_] | None = None
    """By row: whether it may go there, GPUs aside. None, and rows beyond the end: it may."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is to be done: wake these, in this order, and hold these cards (those not named hold nothing)."""

    wake: tuple[str, ...]
    holds: Mapping[str, tuple[str, tuple[str, ...]]]
    """UID of a waiting pod to the node and the cards held for it."""
    places: Mapping[str, str] = field(default_factory=dict)
    """For each of those to be woken, the node whose room it was counted against."""


def order(line: Iterable[Waiting]) -> list[Waiting]:
    """Higher priority first, then who came first, then by UID so that all agree."""
    return sorted(line, key=lambda waiting: (-waiting.priority, waiting.since, waiting.uid))


def serve(
    fleet: Fleet, line: Sequence[Waiting], now: float, patience: float, rows: Rows | None = None
) -> Served:
    """Decide who is woken and which cards are held for whom. The fleet is not changed."""
    from cotenant.kube.scheduling.scan import Verdict, scan

    _ = now, patience
    wake = []
    for waiting in order(line):
        at = np.arange(fleet.matrix.rows, dtype=np.int32) if rows is None else rows
        fits = scan(fleet, waiting.uid, waiting.demands, at) == Verdict.FITS
        if fits.any():
            wake.append(waiting.uid)
    return Served(tuple(wake), {})

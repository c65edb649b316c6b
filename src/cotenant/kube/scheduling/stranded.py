"""Measures which free GPU memory the pods that are likely to come cannot use, and for which reason.

A typical pod is drawn from those that were seen, by the GPU memory that they ask for. What is free on a node
is counted under the first reason for which this pod could not have it, in the order of `Cause`; the rest is
usable. So all causes and what is usable add up to what is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.learning import Supply, mean_bytes
from cotenant.core.seen_pods import PodKind, SeenPods
from cotenant.kube.scheduling.demand_mask import enough, want
from cotenant.kube.scheduling.matrix import Bools, Matrix, Window

TYPICAL = 0.95
"""The kinds of pods that ask for most GPU memory count, until they ask for this share of all."""
MOST_KINDS = 128


class Cause(StrEnum):
    """Why free GPU memory is of no use to a pod."""

    CORDONED = "cordoned"
    """The node takes no new pods."""
    PODS = "pods"
    """It has no place for another pod."""
    CPU = "cpu"
    MEMORY = "memory"
    """It has less CPU, or memory of the host, left than the pod requests."""
    MODEL = "model"
    """The card is none of the models that the pod names."""
    REMAINDER = "remainder"
    """The card has too little left, or is in use and the pod asks for whole ones."""
    CARDS = "cards"
    """The card would do, but the node has fewer of them than the pod asks for."""


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A kind of pods, with its share of the GPU memory that is asked for."""

    demand: Demand
    cpu: int
    memory: int
    share: float


@dataclass(frozen=True, slots=True)
class Stranded:
    """Free GPU memory in bytes: what is usable, and what is not, by cause."""

    free: int
    causes: dict[Cause, float]

    @property
    def bytes(self) -> float:
        return sum(self.causes.values())


def typical(seen: SeenPods, supply: Supply) -> tuple[TypicalPod, ...]:
    """Returns the pods that ask for most of the GPU memory; their shares add up to 1."""
    if not supply.bytes:
        return ()
    asked = [
        (mean_bytes(kind.demand, supply) * count, kind, kind.demand)
        for kind, count in seen.counts.items()
        if kind.demand is not None
    ]
    asked.sort(key=lambda each: (-each[0], _order(each[1])))
    chosen, total, limit = (
        list[tuple[float, PodKind, Demand]](),
        0.0,
        TYPICAL * sum(each[0] for each in asked),
    )
    for each in asked[:MOST_KINDS]:
        if total >= limit:
            break
        chosen.append(each)
        total += each[0]
    return tuple(TypicalPod(demand, kind.cpu, kind.memory, size / total) for size, kind, demand in chosen)


def _order(kind: PodKind) -> tuple[int, int, str]:
    return kind.cpu, kind.memory, str(kind.demand)


def stranded(matrix: Matrix, pods: Sequence[TypicalPod], cordoned: Bools | None = None) -> Stranded:
    """Counts what is free now. `cordoned`: by row, whether the node takes no new pods."""
    window = Window(matrix, None)
    free = window.free.astype(np.float64)
    by_node = free.sum(axis=0)
    lost = dict.fromkeys(Cause, 0.0)
    closed = np.zeros(window.width, np.bool_) if cordoned is None else cordoned
    for cause, nodes in ((Cause.CORDONED, closed), (Cause.PODS, ~closed & (window.pods < 1))):
        lost[cause] = float(by_node[nodes].sum()) if pods else 0.0
    open_ = ~closed & (window.pods >= 1)
    for pod in pods:
        enough_cpu = open_ & (window.cpu >= pod.cpu)
        there = enough_cpu & (window.memory >= pod.memory)
        lost[Cause.CPU] += pod.share * _sum(by_node, open_ & ~enough_cpu)
        lost[Cause.MEMORY] += pod.share * _sum(by_node, enough_cpu & ~there)
        for cause, cards in _cards(window, pod.demand, there):
            lost[cause] += pod.share * _sum(free, cards)
    return Stranded(int(by_node.sum()), lost)


def _cards(window: Window, demand: Demand, there: Bools) -> Iterable[tuple[Cause, Bools]]:
    """Yields the cards of these nodes that the demand cannot use."""
    part = want(demand, window)
    fit = part.fits(window.free, window.compute, window.unused)
    if part.accepts is not None:
        yield Cause.MODEL, ~part.accepts & there
        yield Cause.REMAINDER, part.accepts & ~fit & there
    else:
        yield Cause.REMAINDER, ~fit & there
    if part.count > 1:
        yield Cause.CARDS, fit & (there & ~enough(fit, part.count))


def _sum(amounts: NDArray[np.float64], mask: Bools) -> float:
    return float((amounts * mask).sum())

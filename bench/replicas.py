"""Places pods by BestFit and FGD of "Beware of Fragmentation" (USENIX ATC '23), to compare with.

FGD's measure of a node is F = sum over typical pods m of p(m) F(m): F(m) is all free GPU if m cannot run
there or needs no GPU, else the free GPU of the cards that m does not fit on. A pod goes where F grows
least. Typical are the most frequent pods that make up 95 % of all, which FGD knows beforehand. Ties go to the
best fit: at random they lose two points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.simulate.placement.cluster import DefaultScheduler
from cotenant.simulate.placement.trace import CARD, MILLI
from cotenant.simulate.placement.workload import SimulatedNode, SimulatedPod

WHOLE = CARD // MILLI
COVER = 0.95
STEP = WHOLE / 10
"""Smaller differences do not count: with a tenth of a card the replica allocates what the paper reports."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Replica:
    """The nodes as arrays, in thousandths of a card. A subclass ranks them."""

    def __init__(self, nodes: Sequence[SimulatedNode], scheduler: DefaultScheduler | None = None) -> None:
        """`scheduler` places the pods without GPU; by default the replica's own rank does."""
        self._scheduler = scheduler
        self.models = [node.gpus[0].model for node in nodes]
        columns = max(len(node.gpus) for node in nodes)
        self.card = np.array([[at < len(node.gpus) for node in nodes] for at in range(columns)])
        self.free = np.where(self.card, WHOLE, 0).astype(np.int64)
        self.cpu = np.array([node.has.cpu for node in nodes], np.int64)
        self.memory = np.array([node.has.memory for node in nodes], np.int64)
        self._placed: dict[str, tuple[int, list[int], int, SimulatedPod]] = {}

    def rank(self, rows: Ints, fit: NDArray[np.bool_], pod: SimulatedPod, need: int, /) -> tuple[int, int]:
        """Returns one of the rows, and the card for one part of a GPU; -1 if any will do."""
        raise NotImplementedError

    def place(self, uid: str, pod: SimulatedPod) -> int | None:
        count, need, models = shape(pod)
        fit = self.card & (self.free >= need) & (self.cpu >= pod.cpu) & (self.memory >= pod.memory)
        if models:
            fit &= np.array([model in models for model in self.models])
        rows = np.flatnonzero(fit.sum(axis=0) >= max(count, 1))
        if not len(rows):
            return None
        if not count and self._scheduler is not None:
            row, card = self._scheduler.choose(pod, rows.astype(np.int32), self.cpu, self.memory), -1
        else:
            row, card = self.rank(rows, fit, pod, need)
        tightest = np.where(fit[:, row], self.free[:, row], WHOLE + 1).argsort(kind="stable")
        cards = [card] if card >= 0 else tightest[:count].tolist()
        self._placed[uid] = row, cards, need, pod
        self._take(uid, 1)
        return row

    def end(self, uid: str) -> None:
        self._take(uid, -1)
        del self._placed[uid]

    def _take(self, uid: str, times: int) -> None:
        row, cards, need, pod = self._placed[uid]
        self.free[cards, row] -= times * need
        self.cpu[row] -= times * pod.cpu
        self.memory[row] -= times * pod.memory


def shape(pod: SimulatedPod) -> tuple[int, int, tuple[str, ...]]:
    """Returns the number of cards, the thousandths of each, and the models that will do."""
    if not pod.demands:
        return 0, 0, ()
    (demand,) = pod.demands
    return demand.count, demand.per_card(CARD) // MILLI, demand.models


class BestFit(Replica):
    """Takes the node where least is left of CPU and GPU, each in parts of what the largest node has."""

    def rank(self, rows: Ints, _fit: NDArray[np.bool_], _pod: SimulatedPod, _need: int, /) -> tuple[int, int]:
        left = self.cpu[rows] / self.cpu_most + self.free[:, rows].sum(axis=0) / (WHOLE * len(self.free))
        return int(rows[left.argmin()]), -1

    def __init__(self, nodes: Sequence[SimulatedNode], scheduler: DefaultScheduler | None = None) -> None:
        super().__init__(nodes, scheduler)
        self.cpu_most = int(self.cpu.max())


class Fgd(Replica):
    """Takes the node and card where F grows least."""

    def __init__(
        self,
        nodes: Sequence[SimulatedNode],
        pods: Iterable[SimulatedPod],
        scheduler: DefaultScheduler | None = None,
    ) -> None:
        super().__init__(nodes, scheduler)
        typical = most_frequent(Counter((*shape(pod), pod.cpu) for pod in pods))
        self._names = sorted(set(self.models))
        self._model = np.array([self._names.index(model) for model in self.models])
        self._cpus = np.array(sorted({cpu for _, (*_, cpu) in typical}), np.int64)
        room = np.arange(WHOLE + 1)
        lost = np.zeros((len(self._names), len(self._cpus) + 1, WHOLE + 1))
        self._several: list[tuple[float, int, int, int, Floats]] = []
        for share, (count, need, models, cpu) in typical:
            level = int(self._cpus.searchsorted(cpu, "right"))
            runs = np.array([bool(count) and (not models or name in models) for name in self._names])
            if count > 1:
                self._several.append((share, count, need, level, runs))
                continue
            for model, level_ in np.ndindex(lost.shape[:2]):
                usable = runs[model] and level_ >= level
                lost[model, level_] += share * np.where((room >= need) & usable, 0, room)
        self._lost = lost
        """By model, step of CPU and room of a card: what is lost to demands for one card, or for none."""

    def rank(self, rows: Ints, fit: NDArray[np.bool_], pod: SimulatedPod, need: int, /) -> tuple[int, int]:
        count, free = shape(pod)[0], self.free[:, rows]
        before = self._level(self.cpu[rows])
        after = self._level(self.cpu[rows] - pod.cpu)
        now = self._measure(rows, free, before)
        if count != 1 or need == WHOLE:
            left = self._without(free, fit[:, rows], count)
            more = self._measure(rows, left, after) - now
            best = np.lexsort((left.sum(axis=0), np.floor(more / STEP)))[0]
            return int(rows[best]), -1
        then = np.maximum(free - need, 0)
        model = self._model[rows]
        total = self._lost[model, after, free].sum(axis=0)
        change = self._lost[model, after, then] - self._lost[model, after, free]
        grown = total + change - now
        for share, number, part, level, runs in self._several:
            fits = free >= part
            still = then >= part
            cards = fits.sum(axis=0) - fits + still
            unfit = np.where(fits, 0, free).sum(axis=0) - np.where(fits, 0, free) + np.where(still, 0, then)
            able = (cards >= number) & (after >= level) & runs[model].astype(bool)
            grown = grown + share * np.where(able, unfit, free.sum(axis=0) - free + then)
        key = np.where(fit[:, rows], np.floor(grown / STEP), np.inf)
        least = np.flatnonzero((key == key.min()).ravel())
        at = least % len(rows)
        by = np.lexsort((free.sum(axis=0)[at], then.ravel()[least]))
        column, best = divmod(int(least[by[0]]), len(rows))
        return int(rows[best]), column

    def _measure(self, rows: Ints, free: Ints, level: Ints) -> Floats:
        model = self._model[rows]
        lost: Floats = self._lost[model, level, free].sum(axis=0)
        for share, number, part, least, runs in self._several:
            fits = free >= part
            able = (fits.sum(axis=0) >= number) & (level >= least) & runs[model].astype(bool)
            lost = lost + share * np.where(able, np.where(fits, 0, free).sum(axis=0), free.sum(axis=0))
        return lost

    def _without(self, free: Ints, fit: NDArray[np.bool_], count: int) -> Ints:
        """Takes whole cards."""
        left, taken = free.copy(), np.zeros(free.shape[1], np.int64)
        for column in range(len(free)):
            take = fit[column] & (taken < count)
            left[column, take] = 0
            taken += take
        return left

    def _level(self, cpu: Ints) -> Ints:
        return self._cpus.searchsorted(cpu, "right")


Kind = tuple[int, int, tuple[str, ...], int]


def most_frequent(kinds: Counter[Kind]) -> list[tuple[float, Kind]]:
    taken, total, frequent = 0, kinds.total(), list[tuple[float, Kind]]()
    for kind, count in kinds.most_common():
        if taken >= COVER * total:
            break
        frequent.append((count / total, kind))
        taken += count
    return frequent

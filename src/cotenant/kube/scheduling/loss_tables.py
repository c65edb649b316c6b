"""Measures what free GPU memory loses to the demands that are likely to come, for many nodes at once.

The measure is the core's (`core/loss.py`), figure for figure: tables in place of its loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Demand
from cotenant.core.loss import FULLER, LOST, RESERVE, Loss, NodeLoss, SeveralCards, Steps
from cotenant.kube.scheduling.demand_mask import how_many
from cotenant.kube.scheduling.kinds import NOWHERE, Kinds
from cotenant.kube.scheduling.matrix import Bools, Bytes, Window

Floats = NDArray[np.float64]
Numbers = NDArray[np.int32]

_SIZE_BITS = 44
"""Above these bits of a key is the number of a card's size, below them its free bytes: at most 16 TiB."""


class Move(NamedTuple):
    """What one part of a pod changes on one card of each node."""

    kind: Numbers
    before: Bytes
    """Free bytes without it."""
    unused: Bools
    """Whether nothing used the card before."""
    after: Bytes
    more: Bytes
    """How much more is lost on the card."""


class SpareRows(NamedTuple):
    """What nodes have left beside their GPUs, as the core's `Spare`."""

    cpu: Bytes
    memory: Bytes

    @classmethod
    def now(cls, window: Window) -> SpareRows:
        return cls(window.cpu, window.memory)

    @classmethod
    def less(cls, window: Window, cpu: int, memory: int) -> SpareRows:
        """Returns what is left beside one more pod."""
        left = np.maximum(window.cpu - cpu, 0), np.maximum(window.memory - memory, 0)
        full = window.pods <= 1
        if full.any():
            left[0][full] = left[1][full] = 0
        return cls(*left)


@dataclass(slots=True)
class NodeLosses:
    """What is lost on each of some nodes, and the sums that it is made of."""

    cards: Bytes
    """By card: what is lost on it."""
    counts: NDArray[np.int16]
    """For each kind of demands for several cards: by node, how many of its cards fit one part."""
    sums: Bytes
    """The free bytes on these cards."""
    free: Bytes
    """By node, in all."""
    on_cards: Bytes
    """By node, what is lost card by card."""
    lost: Bytes
    """By node, in all."""

    def at(self, rows: NDArray[np.integer[Any]] | range) -> NodeLosses:
        """Returns those of these nodes; of a range without a copy."""
        if isinstance(rows, range):
            part = slice(rows.start, rows.stop)
            fields = (getattr(self, name)[..., part] for name in NodeLosses.__slots__)
        else:
            fields = (getattr(self, name).take(rows, axis=-1) for name in NodeLosses.__slots__)
        return NodeLosses(*fields)

    def put(self, row: int, other: NodeLoss) -> None:
        """Sets what is lost on one node."""
        cards = other.cards
        self.cards[: len(cards), row] = cards
        self.cards[len(cards) :, row] = 0
        self.counts[:, row] = other.counts
        self.sums[:, row] = other.sums
        self.free[row], self.on_cards[row], self.lost[row] = other.free, sum(cards), other.lost


class LossTables:
    """The measure for the kinds of cards that are known when it is made."""

    def __init__(self, loss: Loss, kinds: Kinds) -> None:
        gpus = kinds.gpus
        self.known = len(gpus)
        self.loss = loss
        sizes = sorted({gpu.memory for gpu in gpus}) or [0]
        cards = [loss.card(size) for size in sizes]
        table_of = {size: table for table, size in enumerate(sizes)}
        self._base = np.array([0, *(table_of[gpu.memory] << _SIZE_BITS for gpu in gpus)], np.int64)
        self._one_size = len(sizes) == 1
        starts = [(table << _SIZE_BITS) + start for table, each in enumerate(cards) for start in each.starts]
        self._starts = np.array(starts[1:], np.int64)
        self._slopes = np.array([each for card in cards for each in card.slopes])
        self._offsets = np.array([each for card in cards for each in card.offsets])
        self.lost_unused = np.array([0, *(loss.card(gpu.memory).unused for gpu in gpus)], np.int64)
        """By kind: what is lost on a card that nothing uses."""
        self._several = _SeveralTables(loss.several, kinds)
        beside = loss.beside
        self._cpu, self._memory, self._weight = beside.cpu, beside.memory, beside.weight
        self._cpu_steps, self._memory_steps = _StepsTable(beside.cpu_steps), _StepsTable(beside.memory_steps)

    def measure(self, window: Window) -> NodeLosses:
        """Measures nodes as they are."""
        free, unused, kind = window.free, window.unused, window.kind
        cards = self.lost(kind, free, unused)
        shape = self._several.groups, window.width
        counts, sums = np.zeros(shape, np.int16), np.zeros(shape, np.int64)
        for at in range(self._several.groups):
            (fit,) = self._several.fits(kind, free, unused, slice(at, at + 1))
            counts[at], sums[at] = how_many(fit), np.where(fit, free, 0).sum(axis=0)
        total: Bytes = free.sum(axis=0)
        on_cards: Bytes = cards.sum(axis=0)
        lost = on_cards + self._on_nodes(counts, sums, total, SpareRows.now(window))
        return NodeLosses(cards, counts, sums, total, on_cards, lost)

    def more(self, losses: NodeLosses, moves: Sequence[Move], spare: SpareRows) -> Bytes:
        """Returns how much more is lost on each node after these moves, with this left beside its GPUs, and a
        little for what is free then.
        """
        more: Bytes = losses.on_cards - losses.lost
        counts, sums, total = losses.counts, losses.sums, losses.free
        for move in moves:
            more += move.more
            total = total + move.after - move.before
            if self._several.groups:
                was = self._several.fits(move.kind, move.before, move.unused)
                still = self._several.fits(move.kind, move.after, None)
                counts = counts + still - was
                sums = sums + move.after * still - move.before * was
        more += self._on_nodes(counts, sums, total, spare)
        more += total // FULLER
        return more

    def lost(self, kind: Numbers, free: Bytes, unused: Bools) -> Bytes:
        """Returns what is lost on each card."""
        return np.where(unused, self.lost_unused.take(kind), self.lost_used(kind, free))

    def lost_used(self, kind: Numbers, free: Bytes) -> Bytes:
        """Returns what is lost on cards that are in use."""
        key = free if self._one_size else self._base.take(kind) + free
        line = self._starts.searchsorted(key, "right")
        lost: Floats = self._slopes.take(line) * free + self._offsets.take(line)
        return np.rint(lost).astype(np.int64)

    def _on_nodes(self, counts: NDArray[np.int16], sums: Bytes, free: Bytes, spare: SpareRows) -> Bytes:
        """Returns what is lost by node, without what is lost card by card."""
        lost = self._beside(free, spare)
        return lost - self._several.kept(counts, sums, spare) if self._several.groups else lost

    def _beside(self, free: Bytes, spare: SpareRows) -> Bytes:
        usable: Floats = free.astype(np.float64)
        if self._cpu:
            usable = np.minimum(usable, spare.cpu / self._cpu)
        if self._memory:
            usable = np.minimum(usable, spare.memory / self._memory)
        lost = free - usable
        if self._weight:
            short = self._cpu_steps.more_than(spare.cpu) + self._memory_steps.more_than(spare.memory)
            lost += self._weight * free * short
        return np.rint(lost).astype(np.int64)


def reserve(taken: Bytes, reserved: Bools) -> Bytes:
    """Returns the price of these bytes where their model is reserved for others."""
    return np.where(reserved, np.rint(RESERVE * taken).astype(np.int64), 0)


class _StepsTable:
    def __init__(self, steps: Steps) -> None:
        self._needs, self._above = np.array(steps.needs, np.int64), np.array(steps.above)

    def more_than(self, amount: Bytes) -> Floats:
        return self._above.take(self._needs.searchsorted(amount, "right"))


class _SeveralTables:
    """The core's `SeveralCards`, all of them at once: by group and kind of card what one part needs; by kind
    of demand, the least cards, CPU and memory of a node that can serve it.
    """

    def __init__(self, several: Sequence[SeveralCards], kinds: Kinds) -> None:
        self.groups = len(several)
        self._need = np.array([_needs(each.part, kinds) for each in several], np.int64)
        self._whole = np.array([each.part.memory is None for each in several], np.bool_)
        self._some_whole = bool(self._whole.any())
        demands = [(group, *kind) for group, each in enumerate(several) for kind in each.kinds]
        group, counts, cpus, memories, shares = zip(*demands, strict=True) if demands else ((),) * 5
        self._group = np.array(group, np.intp)
        self._counts = np.array(counts, np.int16)[:, None]
        self._cpus, self._memories = np.array(cpus, np.int64)[:, None], np.array(memories, np.int64)[:, None]
        self._shares = np.array(shares, np.float64)[:, None]

    def fits(self, kind: Numbers, free: Bytes, unused: Bools | None, groups: slice = slice(None)) -> Bools:
        """Reports, by group, for each card whether one part fits; None: something uses all of them."""
        need = self._need[groups].take(kind, axis=1)
        fit: Bools = free >= need
        if self._some_whole:
            whole = self._whole[groups]
            fit[whole] = False if unused is None else unused & (need[whole] == 0)
        return fit

    def kept(self, counts: NDArray[np.int16], sums: Bytes, spare: SpareRows) -> Bytes:
        """Returns what nodes keep for all groups. A count is below 0 where the pod does not fit."""
        served = counts.take(self._group, axis=0) >= self._counts
        served &= spare.cpu >= self._cpus
        served &= spare.memory >= self._memories
        share = np.zeros(sums.shape)
        for group, part in zip(self._group, self._shares * served, strict=True):
            share[group] += part  # in the order in which the core adds
        kept: Bytes = np.rint(LOST * share * sums).astype(np.int64).sum(axis=0)
        return kept


def _needs(part: Demand, kinds: Kinds) -> list[int]:
    """Returns by kind of card what one part needs, 0 for a whole card; NOWHERE if it may not go there."""
    return [
        NOWHERE,
        *(
            (0 if part.memory is None else part.per_card(gpu.memory)) if part.accepts(gpu) else NOWHERE
            for gpu in kinds.gpus
        ),
    ]

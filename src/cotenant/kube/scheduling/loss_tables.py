"""Measures what free GPU memory loses to the demands that are likely to come, for many nodes at once.

The measure is the core's (`core/loss.py`), figure for figure: tables in place of its loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        self._several = [_SeveralTable(each, kinds) for each in loss.several]
        beside = loss.beside
        self._cpu, self._memory, self._weight = beside.cpu, beside.memory, beside.weight
        self._cpu_steps, self._memory_steps = _StepsTable(beside.cpu_steps), _StepsTable(beside.memory_steps)

    def measure(self, window: Window) -> NodeLosses:
        """Measures nodes as they are."""
        free, unused, kind = window.free, window.unused, window.kind
        cards = self.lost(kind, free, unused)
        shape = len(self._several), window.width
        counts, sums = np.zeros(shape, np.int16), np.zeros(shape, np.int64)
        for at, each in enumerate(self._several):
            fit = each.fits(kind, free, unused)
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
        if moves and self._several:
            counts, sums = counts.copy(), sums.copy()
        for move in moves:
            more += move.more
            total = total + move.after - move.before
            for at, each in enumerate(self._several):
                was, still = (
                    each.fits(move.kind, move.before, move.unused),
                    each.fits(move.kind, move.after, None),
                )
                counts[at] -= was
                counts[at] += still
                sums[at] += move.after * still - move.before * was
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
        for at, each in enumerate(self._several):
            lost -= each.kept(counts[at], sums[at], spare)
        return lost

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


class _SeveralTable:
    """The core's `SeveralCards`: by kind of card what one part needs; by number of cards, CPU and memory the
    share of the demands that a node can serve.
    """

    def __init__(self, several: SeveralCards, kinds: Kinds) -> None:
        part = several.part
        needs = [
            (0 if part.memory is None else part.per_card(gpu.memory)) if part.accepts(gpu) else NOWHERE
            for gpu in kinds.gpus
        ]
        self._need = np.array([NOWHERE, *needs], np.int64)
        self._whole = part.memory is None
        counts = np.arange(max(count for count, *_ in several.kinds) + 1)
        self._cpus = np.array(sorted({cpu for _, cpu, _, _ in several.kinds}), np.int64)
        self._memories = np.array(sorted({memory for _, _, memory, _ in several.kinds}), np.int64)
        cpus = np.concatenate(([-1], self._cpus))[:, None]
        memories = np.concatenate(([-1], self._memories))
        share = np.zeros((len(counts), len(cpus), len(memories)))
        for count, cpu, memory, each in several.kinds:
            share += each * ((counts >= count)[:, None, None] & (cpus >= cpu) & (memories >= memory))
        self._share = share

    def fits(self, kind: Numbers, free: Bytes, unused: Bools | None) -> Bools:
        """Reports for each card whether one part fits; None: something uses all of them."""
        if self._whole and unused is None:
            return np.zeros(free.shape, np.bool_)
        need = self._need.take(kind)
        fit: Bools = unused & (need == 0) if self._whole else free >= need
        return fit

    def kept(self, counts: NDArray[np.int16], sums: Bytes, spare: SpareRows) -> Bytes:
        at = np.clip(counts, 0, len(self._share) - 1)  # below 0 where the pod does not fit
        cpu = self._cpus.searchsorted(spare.cpu, "right")
        memory = self._memories.searchsorted(spare.memory, "right")
        return np.rint(LOST * self._share[at, cpu, memory] * sums).astype(np.int64)

"""Measures what a machine's free GPU memory loses to the demands that are likely to come, in bytes.

Four things lose free memory: a remainder on a card that few demands fit into, a card broken open that a
demand for whole cards or for several needed, memory on a node without the CPU or memory to use it, and cards
of a model that others ask for by name. A placement is judged by how much more is lost after it.

Every part of the sum is rounded to whole bytes, so that it does not depend on the order of cards, and what is
released after a charge is exactly what was before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cotenant.core.cutting import STEPS
from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Room

LOST = 0.3
"""How much of what a demand cannot use counts as lost: another demand may use it."""
RESERVE = 0.3
"""What a byte costs on a model that others are about to ask for by name."""
PLENTY = 2**60
"""CPU, memory or pods of a node that does not report them."""
STILL_COMING = 20
"""However much of a model is held by those who asked for it by name, this part of it is likely to come still.
"""
FULLER = 10_000
"""The part by which free bytes count against a node that is equal to another otherwise."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Sizes that are asked for, and which share of the demands needs more."""

    needs: tuple[int, ...]
    """In ascending order."""
    above: tuple[float, ...]
    """The share of all demands, of all but the first, of all but the first two ..."""

    def more_than(self, amount: int) -> float:
        """Returns the share of the demands that need more than this."""
        return self.above[bisect_right(self.needs, amount)]


@dataclass(frozen=True, slots=True)
class CardLoss:
    """What is lost on cards of one size, by the room that they have: straight lines between some sizes."""

    starts: tuple[int, ...]
    """From how many free bytes on each line holds, the first from 0."""
    slopes: tuple[float, ...]
    offsets: tuple[float, ...]
    unused: int
    """What is lost on a card that nothing uses."""

    def used(self, free: int) -> int:
        """Returns what is lost on a card in use that has so much free."""
        at = bisect_right(self.starts, free) - 1
        return round(self.slopes[at] * free + self.offsets[at])

    def of(self, room: Room) -> int:
        return self.unused if room.unused else self.used(room.free)


@dataclass(frozen=True, slots=True)
class SeveralCards:
    """Demands for several cards of one node that need the same of each."""

    part: Demand
    """What is asked of each of the cards."""
    kinds: tuple[tuple[int, int, int, float], ...]
    """The number of cards, the pod's CPU and memory, and the share of all demands."""

    def need(self, gpu: GPU) -> int | None:
        """Returns what one part takes of such a card; None if it may not go there."""
        return self.part.per_card(gpu.memory) if self.part.accepts(gpu) else None

    def fits(self, room: Room, need: int | None) -> bool:
        """Whether one of the cards could be this one, where a part needs so much. Compute does not count."""
        return need is not None and (room.unused if self.part.memory is None else need <= room.free)

    def kept(self, cards: int, free: int, spare: Spare) -> int:
        """Returns what the node keeps for them, where this many cards fit, with so much free in all."""
        share = 0.0
        for count, cpu, memory, each in self.kinds:
            if count <= cards and cpu <= spare.cpu and memory <= spare.memory:
                share += each
        return round(LOST * share * free)


@dataclass(frozen=True, slots=True)
class Spare:
    """What a node has left beside its GPUs. Never below zero."""

    cpu: int = PLENTY
    """Thousandths of a CPU."""
    memory: int = PLENTY
    """Bytes."""
    pods: int = PLENTY

    def less(self, cpu: int, memory: int) -> Spare:
        """Returns what is left beside one more pod. Without a place for another pod nothing is."""
        if self.pods <= 1:
            return Spare(0, 0, 0)
        return Spare(max(0, self.cpu - cpu), max(0, self.memory - memory), self.pods - 1)


@dataclass(frozen=True, slots=True)
class Requests:
    """What a pod takes of its node beside GPUs."""

    cpu: int = 0
    """Thousandths of a CPU."""
    memory: int = 0
    """Bytes."""
    by_name: bool = False
    """Whether it asks for a model of GPU by name."""


NO_REQUESTS = Requests()


@dataclass(frozen=True, slots=True)
class Beside:
    """What CPU and memory are needed beside GPU memory."""

    cpu: float = 0.0
    """Thousandths of a CPU that usually come with a byte of GPU memory; 0: not known."""
    memory: float = 0.0
    """Bytes of the host's memory for one of the GPU's."""
    cpu_steps: Steps = Steps((), (0.0,))
    """What demands for one card need of CPU, and of memory."""
    memory_steps: Steps = Steps((), (0.0,))
    weight: float = 0.0
    """What they count, which they do only where CPU or memory is scarcer than GPU."""

    def lost(self, free: int, spare: Spare) -> int:
        """Returns what is lost of this much free GPU memory."""
        usable = float(free)
        if self.cpu:
            usable = min(usable, spare.cpu / self.cpu)
        if self.memory:
            usable = min(usable, spare.memory / self.memory)
        lost = free - usable
        if self.weight:
            short = self.cpu_steps.more_than(spare.cpu) + self.memory_steps.more_than(spare.memory)
            lost += self.weight * free * short
        return round(lost)


class NodeLoss(NamedTuple):
    """What is lost on one node, and the sums that it is made of."""

    cards: list[int]
    """What is lost on each card."""
    counts: list[int]
    """For each kind of demands for several cards: how many cards fit one part."""
    sums: list[int]
    """The free bytes on these cards."""
    free: int
    """Free bytes in all."""
    lost: int
    """In all."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The measure, as `core/learning.py` learned it."""

    parts: tuple[tuple[Memory, float], ...] = ()
    """What demands for a part of one card need, and their share of all GPU memory that is asked for."""
    whole: float = 0.0
    worth: tuple[float, ...] = ()
    several: tuple[SeveralCards, ...] = ()
    beside: Beside = Beside()
    usual: Mapping[str, int] = field(default_factory=dict)
    """By model, the bytes that are usually held by pods that ask for it by name."""
    _cards: dict[int, CardLoss] = field(default_factory=dict, compare=False, repr=False)
    _needs: dict[tuple[str, int], tuple[int | None, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By model and size of a card: what one part of each of `several` needs."""

    def card(self, size: int) -> CardLoss:
        known = self._cards.get(size)
        if known is None:
            known = self._cards[size] = self._on_card(size)
        return known

    def _on_card(self, size: int) -> CardLoss:
        """A card in use loses room to those who need more of it or a whole card. Where room has a worth, what
        the best filling leaves is lost for certain. An unused card is lost only to those who need more.
        """
        parts = steps((memory.on(size), share) for memory, share in self.parts)
        starts = {0, size, *(need for need in parts.needs if need < size)}
        if self.worth:
            starts.update(-(-size * step // STEPS) for step in range(1, STEPS))
        slopes, offsets = list[float](), list[float]()
        for free in sorted(starts):
            slopes.append(LOST * (parts.more_than(free) + self.whole))
            offsets.append(0.0)
            if self.worth and free < size:
                slopes[-1] += 1.0
                offsets[-1] -= size * self.worth[free * STEPS // size]
        unused = round(LOST * parts.more_than(size) * size)
        return CardLoss(tuple(sorted(starts)), tuple(slopes), tuple(offsets), unused)

    def reserved(
        self, free: Mapping[str, int], named: Mapping[str, int], models: Sequence[str] = ()
    ) -> frozenset[str]:
        """Returns the models that are kept for those who ask for them by name: more of them is likely to come
        than is free. One who asks for these models himself is not kept from them.

        `free` and `named` by model: the free bytes, and those that are held by pods that asked by name.
        """
        return frozenset(
            model
            for model, usual in self.usual.items()
            if max(usual // STILL_COMING, usual - named.get(model, 0)) >= free.get(model, 0)
            and not any(GPU("-", 0, model, 0).is_model(wish) for wish in models)
        )

    def on_node(self, rooms: Sequence[Room], spare: Spare) -> int:
        """Returns what is lost on a node as it is."""
        return self.node(rooms, spare).lost

    def node(self, rooms: Sequence[Room], spare: Spare) -> NodeLoss:
        cards = [self.card(room.gpu.memory).of(room) for room in rooms]
        free = sum(room.free for room in rooms)
        lost, counts, sums = sum(cards), list[int](), list[int]()
        needs = [self._needs_of(room.gpu) for room in rooms] if self.several else []
        for at, each in enumerate(self.several):
            fit = [room.free for room, need in zip(rooms, needs, strict=True) if each.fits(room, need[at])]
            counts.append(len(fit))
            sums.append(sum(fit))
            lost -= each.kept(len(fit), sums[-1], spare)
        lost += self.beside.lost(free, spare)
        return NodeLoss(cards, counts, sums, free, lost)

    def _needs_of(self, gpu: GPU) -> tuple[int | None, ...]:
        key = gpu.model, gpu.memory
        known = self._needs.get(key)
        if known is None:
            known = self._needs[key] = tuple(each.need(gpu) for each in self.several)
        return known


def steps(shares: Iterable[tuple[int, float]]) -> Steps:
    """Sorts demands by what they need, and sums the shares of those that need more."""
    at: dict[int, float] = {}
    for need, share in shares:
        at[need] = at.get(need, 0.0) + share
    needs = sorted(at)
    above = [0.0]
    for need in reversed(needs):
        above.append(above[-1] + at[need])
    return Steps(tuple(needs), tuple(reversed(above)))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the policy `frag` knows of a node beside its cards."""

    loss: Loss
    before: Spare = Spare()
    """What the node has left beside its GPUs, without the pod."""
    after: Spare = Spare()
    """What it has left with the pod."""
    reserved: frozenset[str] = frozenset()
    """Models that are kept for pods that ask for them by name, which this one does not."""

    def cost(self, before: Sequence[Room], after: Sequence[Room]) -> int:
        """Returns how much more is lost on the node if its rooms change so, and a little for what is free
        then: of nodes that are equal the fuller is taken.
        """
        return self.lost_after(before, after) - self.loss.on_node(before, self.before)

    def lost_after(self, before: Sequence[Room], after: Sequence[Room]) -> int:
        """Returns the same, but for what is lost already: that is one figure for all changes of a node."""
        lost = self.loss.on_node(after, self.after) + sum(room.free for room in after) // FULLER
        if not self.reserved:
            return lost
        return lost + sum(
            self.reserve(was.gpu, was.free - now.free) for was, now in zip(before, after, strict=True)
        )

    def reserve(self, gpu: GPU, taken: int) -> int:
        return round(RESERVE * taken) if gpu.model in self.reserved else 0

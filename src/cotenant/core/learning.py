"""Learns the measure of losses (`core/loss.py`) from the pods that were seen and from what there is.

The same pods and the same supply always give the same measure. Shares are shares of the GPU memory that is
asked for, not of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from cotenant.core.cutting import STEPS, room_values
from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.loss import LOST, PLENTY, Beside, Loss, SeveralCards, Spare, steps
from cotenant.core.seen_pods import SeenPods

FIRST = 20
"""Pods after which the prior is not all that is known any more."""
RARELY = 1000
"""Pods between two lessons, at most."""
MOST_SEVERAL = 32
"""Kinds of demands for several cards that count: those most asked for."""
USUAL, SPREAD, SCARCE = 0.7, 0.9, 1.3
"""What of the mean CPU and memory beside GPU is kept for free GPU memory: more where pods without GPU are
spread over the nodes by others, since these take it anywhere; and most where CPU or memory is scarcer than
GPU. With too little, cards are stranded; with too much, cards seem stranded that are not.
"""
_ALIKE = Fraction(102, 100)
"""Cards count as of one size up to this ratio: drivers keep a little more of one than of another."""
_PRIOR = (
    (8, Demand(whole=1)),
    (6, Demand(Memory(percent=Fraction(50)))),
    (6, Demand(Memory(percent=Fraction(25)))),
)
"""Counted with what was seen; CPU and memory in the ratio of the supply. It decides on a new cluster."""


Cards = tuple[tuple[str, int], ...]
"""Model and size of each, in order."""
_Nodes = dict[Cards, list[tuple[int, int, int]]]
"""CPU and memory of nodes with these cards, and how many there are."""


class NodeShape(NamedTuple):
    """What a node has, whatever runs on it. Sick cards serve nobody."""

    cards: Cards
    cpu: int
    memory: int

    @classmethod
    def of(cls, gpus: Iterable[GPU], has: Spare) -> NodeShape:
        cards = sorted((gpu.model, gpu.memory) for gpu in gpus if gpu.healthy)
        return cls(tuple(cards), has.cpu, has.memory)


@dataclass(slots=True)
class Supply:
    """What there is to place pods on."""

    cards: dict[tuple[str, int], int] = field(default_factory=dict)
    """How many cards there are of each model and size."""
    cpu: int = 0
    """Thousandths of a CPU, of all nodes with cards that report it; 0 if none does."""
    memory: int = 0
    """Bytes of the host's memory."""
    beside: int = 0
    """Bytes of GPU memory on nodes that report CPU and memory."""
    bytes: int = 0
    """GPU memory in all."""
    nodes: dict[NodeShape, int] = field(default_factory=dict)
    """How many nodes there are of each kind."""

    @classmethod
    def of(cls, gpus: Iterable[GPU]) -> Supply:
        """Returns the supply of cards of which CPU and memory beside them are not known."""
        supply = cls()
        supply.add(gpus, Spare())
        return supply

    def add(self, gpus: Iterable[GPU], has: Spare, times: int = 1) -> None:
        """Adds a node with what it has; -1 times removes it."""
        gpus, size = tuple(gpus), 0
        shape = NodeShape.of(gpus, has)
        number = self.nodes.pop(shape, 0) + times
        if number and gpus:
            self.nodes[shape] = number
        for gpu in gpus:
            key = gpu.model, gpu.memory
            count = self.cards.pop(key, 0) + times
            if count and gpu.memory:
                self.cards[key] = count
            size += gpu.memory
        self.bytes += times * size
        if size and has.cpu < PLENTY and has.memory < PLENTY:
            self.cpu += times * has.cpu
            self.memory += times * has.memory
            self.beside += times * size

    def copy(self) -> Supply:
        return replace(self, cards=dict(self.cards), nodes=dict(self.nodes))


@dataclass(frozen=True, slots=True)
class Typical:
    """A kind of demand that counts, for people."""

    demand: Demand
    cpu: int
    """Thousandths of a CPU, of one pod."""
    memory: int
    """Bytes of the host's memory, of one pod."""
    count: int
    share: float
    """Of the GPU memory that is asked for."""
    prior: bool = False
    """Whether it is assumed, and not seen."""


@dataclass(slots=True)
class _Asked:
    """One kind of demand, with what all pods of the kind ask for."""

    demand: Demand
    cpu: float
    memory: float
    count: int
    bytes: float
    """GPU memory of all of them."""


def next_lesson(seen: int) -> int:
    """Returns after how many pods to learn again: when a quarter more were seen."""
    return seen + min(RARELY, max(1, seen // 4)) if seen >= FIRST else FIRST


def typical(seen: SeenPods, supply: Supply) -> list[Typical]:
    """Lists the demands by which placements are judged, those that ask for most first; nothing without GPUs.
    Their shares add up to 1.
    """
    if not supply.bytes:
        return []
    asked = _asked(seen, supply)
    total, known = sum(each.bytes for each in asked), len(asked) - len(_PRIOR)
    return [
        Typical(each.demand, round(each.cpu), round(each.memory), each.count, each.bytes / total, at >= known)
        for at, each in enumerate(asked)
    ]


def learn(seen: SeenPods, supply: Supply, *, spread: bool = True) -> Loss:
    """Returns the measure. It takes milliseconds, or a tenth of a second if very many sizes are asked for.

    `spread`: whether others than the policy place the pods without GPU.
    """
    if not supply.bytes:
        return Loss()
    asked = _asked(seen, supply)
    total = sum(each.bytes for each in asked)
    parts, whole = dict[Memory, float](), 0.0
    for each in asked:
        if each.demand.memory is None:
            whole += each.bytes / total
        elif each.demand.count == 1:
            parts[each.demand.memory] = parts.get(each.demand.memory, 0.0) + each.bytes / total
    return Loss(
        tuple(parts.items()),
        whole,
        _worth(asked, supply),
        _several(asked, total, supply),
        _beside(asked, seen, supply, total, SPREAD if spread else USUAL),
        _usual(asked, supply, total),
    )


def _asked(seen: SeenPods, supply: Supply) -> list[_Asked]:
    """Lists the kinds in an order that does not depend on that of the pods."""
    asked = [
        _Asked(kind.demand, kind.cpu, kind.memory, count, count * mean_bytes(kind.demand, supply))
        for kind, count in seen.counts.items()
        if kind.demand is not None
    ]
    asked.sort(key=lambda each: (-each.bytes, each.cpu, each.memory, str(each.demand)))
    return asked + [_prior(demand, count, supply) for count, demand in _PRIOR]


def _prior(demand: Demand, count: int, supply: Supply) -> _Asked:
    size = mean_bytes(demand, supply)
    beside = supply.beside or 1
    return _Asked(demand, supply.cpu * size / beside, supply.memory * size / beside, count, count * size)


def mean_bytes(demand: Demand, supply: Supply) -> float:
    """Returns the GPU memory that it takes; of demands for parts of a card or for whole cards the mean over
    the cards that it may go to.
    """
    if demand.memory is not None and demand.memory.bytes is not None:
        return float(demand.per_card(0) * demand.count)
    cards = accepted(demand, supply) or supply.cards
    number = sum(cards.values())
    taken = sum(demand.per_card(size) * each for (_, size), each in cards.items())
    return demand.count * taken / number


def accepted(demand: Demand, supply: Supply) -> Mapping[tuple[str, int], int]:
    """Returns the cards that it may go to."""
    if not demand.models:
        return supply.cards
    return {key: count for key, count in supply.cards.items() if demand.accepts(GPU("-", 0, *key))}


def _worth(asked: Iterable[_Asked], supply: Supply) -> tuple[float, ...]:
    """Returns what room is worth if all cards are of one size; nothing otherwise."""
    sizes = {size for _, size in supply.cards}
    size = min(sizes)
    if max(sizes) > _ALIKE * size:
        return ()
    parts: dict[int, float] = {}
    for each in asked:
        step = min(STEPS, -(-each.demand.per_card(size) * STEPS // size))
        parts[step] = parts.get(step, 0.0) + each.count * each.demand.count
    return room_values(parts)


def _several(asked: Iterable[_Asked], total: float, supply: Supply) -> tuple[SeveralCards, ...]:
    """Groups the kinds most asked for by what they need of each card. The fewer nodes can serve a kind, the
    more of what these have free is wanted for it.
    """
    several = [each for each in asked if each.demand.count > 1][:MOST_SEVERAL]
    groups: dict[Demand, list[tuple[int, int, int, float]]] = {}
    nodes: _Nodes = {}
    for (cards, cpu, memory), number in supply.nodes.items():
        nodes.setdefault(cards, []).append((cpu, memory, number))
    for each in several:
        wanted = each.bytes / total * _scarce(each, supply, nodes)
        kind = each.demand.count, round(each.cpu), round(each.memory), min(1.0, wanted)
        groups.setdefault(_part(each.demand), []).append(kind)
    return tuple(SeveralCards(part, tuple(kinds)) for part, kinds in groups.items())


def _serves(demand: Demand, gpu: GPU) -> bool:
    return demand.accepts(gpu) and demand.per_card(gpu.memory) <= gpu.memory


def _scarce(asked: _Asked, supply: Supply, nodes: _Nodes) -> float:
    """Returns how many times there is as much GPU memory as on the nodes that can serve this kind."""
    demand, cpu, memory = asked.demand, round(asked.cpu), round(asked.memory)
    serving = 0
    for cards, alike in nodes.items():
        if sum(_serves(demand, GPU("-", 0, *card)) for card in cards) >= demand.count:
            number = sum(
                each for has_cpu, has_memory, each in alike if has_cpu >= cpu and has_memory >= memory
            )
            serving += number * sum(size for _, size in cards)
    return supply.bytes / serving if serving else 1.0


def _part(demand: Demand) -> Demand:
    if demand.memory is None:
        return replace(demand, whole=1, gpus=1)
    if demand.memory.bytes is None:
        return replace(demand, gpus=1)
    return replace(demand, memory=Memory(bytes=demand.per_card(0)), gpus=1)


def _beside(asked: Iterable[_Asked], seen: SeenPods, supply: Supply, total: float, kept: float) -> Beside:
    """Weighs CPU and memory by how scarce they are: what all pods ask for, those without GPU too, for a byte
    of GPU memory that is asked for, beside what there is for one.
    """
    asked = list(asked)
    cpu = sum(each.cpu * each.count for each in asked) if supply.cpu else 0.0
    memory = sum(each.memory * each.count for each in asked) if supply.memory else 0.0
    others = [(kind, count) for kind, count in seen.counts.items() if kind.demand is None]
    all_cpu = cpu + sum(kind.cpu * count for kind, count in others)
    all_memory = memory + sum(kind.memory * count for kind, count in others)
    tight = max(
        all_cpu / total * supply.beside / supply.cpu if supply.cpu else 0.0,
        all_memory / total * supply.beside / supply.memory if supply.memory else 0.0,
    )
    usual = (kept + (SCARCE - kept) * _clip(10 * (tight - 0.9))) / total
    alone = [each for each in asked if each.demand.count == 1]
    return Beside(
        cpu * usual,
        memory * usual,
        steps((round(each.cpu), each.bytes / total) for each in alone),
        steps((round(each.memory), each.bytes / total) for each in alone),
        LOST * _clip(10 * (tight - 1)),
    )


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def _usual(asked: Iterable[_Asked], supply: Supply, total: float) -> dict[str, int]:
    """Divides what demands with names of models ask for among the models that they name, by how much there
    is of each. No more of a model can be held than there is.
    """
    there: dict[str, int] = {}
    for (model, size), count in supply.cards.items():
        there[model] = there.get(model, 0) + size * count
    usual = dict.fromkeys(there, 0.0)
    for each in asked:
        models = {model for model, _ in accepted(each.demand, supply)} if each.demand.models else set()
        named = sum(there[model] for model in models)
        for model in models:
            usual[model] += each.bytes / total * supply.bytes * there[model] / named
    return {model: min(round(usual[model]), there[model]) for model in sorted(there) if usual[model] > 0}

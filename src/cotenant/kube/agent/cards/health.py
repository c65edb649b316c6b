"""Which cards take grants: decided from what NVML told now and what is remembered from before.

A card is sick while it is lost, while it counts uncorrected memory errors, and for a time after it reported a
fault (XID). None is sick for ever: it is given back when what was wrong is over. A card that is gone with
grants on it stays listed, so that what is charged there stays charged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cotenant.core.gpu import GPU
from cotenant.hardware.nvml import CardReading, Fault, Readings, with_known
from cotenant.kube.nodes.gpus import NodeGpus

_XID = re.compile(r"reported a fault \(XID ([0-9]{1,9})\)")


class Mark(NamedTuple):
    """The last fault of a card."""

    xid: int
    at: float
    """By a monotonic clock."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What one survey leaves for the next."""

    known: Mapping[str, GPU] = field(default_factory=dict)
    """Cards as they were when they last answered."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Faults by UUID; those of a MIG instance are told of its physical card."""


NOTHING = Remembered()


def recall(told: NodeGpus, now: float) -> Remembered:
    """What the agent before this one told; a fault that it heard counts from now."""
    marks = {}
    for card in told.cards:
        found = _XID.fullmatch(card.problem or "")
        if found is not None:
            marks[card.uuid] = Mark(int(found[1]), now)
    return Remembered({card.uuid: card.gpu() for card in told.cards}, marks)


def together(newer: Remembered, older: Remembered) -> Remembered:
    """Both; the newer one is right where they differ."""
    return Remembered({**older.known, **newer.known}, {**older.marks, **newer.marks})


def marked(before: Remembered, faults: Iterable[Fault], now: float) -> Remembered:
    return replace(before, marks={**before.marks, **{fault.uuid: Mark(fault.xid, now) for fault in faults}})


def judge(
    before: Remembered, told: Readings | str, in_use: AbstractSet[str], now: float, recovery: float
) -> tuple[Remembered, tuple[CardReading, ...]]:
    """The cards, each with its problem, and what to remember. `told` is a text if the driver gave no answer;
    `in_use` are cards with grants; `recovery` is how many seconds after its last fault a card is well again.
    """
    marks = {uuid: mark for uuid, mark in before.marks.items() if now - mark.at < recovery}
    if isinstance(told, str):
        cards: Sequence[CardReading] = [
            CardReading(replace(gpu, healthy=False), 0, problem=told)
            for gpu in sorted(before.known.values(), key=lambda gpu: gpu.index)
        ]
    else:
        cards = with_known(told, before.known, in_use)
    judged = tuple(_with_mark(card, marks) for card in cards)
    known = {card.gpu.uuid: replace(card.gpu, healthy=True) for card in judged if card.gpu.memory}
    return Remembered(known, marks), judged


def _with_mark(card: CardReading, marks: Mapping[str, Mark]) -> CardReading:
    mark = marks.get(card.gpu.uuid) or marks.get(card.gpu.parent or "")
    if mark is None or card.problem is not None:
        return card
    return card._replace(gpu=replace(card.gpu, healthy=False), problem=f"reported a fault (XID {mark.xid})")

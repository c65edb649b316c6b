"""Judges the health of GPUs, from what NVML reports now and what is remembered from before.

A GPU is sick while it is lost, while it counts uncorrected memory errors, and for a time after it reported a
fault (XID). It recovers when the cause is gone. A GPU that is gone with grants on it stays listed, so that
what is charged there stays charged.
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
    """The last fault of a GPU."""

    xid: int
    at: float
    """By a monotonic clock."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What one survey leaves for the next."""

    known: Mapping[str, GPU] = field(default_factory=dict)
    """GPUs as they were when they last answered."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Faults by UUID; the driver reports those of a MIG instance for its physical card."""


NOTHING = Remembered()


def recall(told: NodeGpus, now: float) -> Remembered:
    """Reads what the agent before this one published; a fault in it counts from now."""
    marks = {}
    for card in told.cards:
        found = _XID.fullmatch(card.problem or "")
        if found is not None:
            marks[card.uuid] = Mark(int(found[1]), now)
    return Remembered({card.uuid: card.gpu() for card in told.cards}, marks)


def together(newer: Remembered, older: Remembered) -> Remembered:
    """Merges both; the newer one wins where they differ."""
    return Remembered({**older.known, **newer.known}, {**older.marks, **newer.marks})


def marked(before: Remembered, faults: Iterable[Fault], now: float) -> Remembered:
    return replace(before, marks={**before.marks, **{fault.uuid: Mark(fault.xid, now) for fault in faults}})


def judge(
    before: Remembered, told: Readings | str, in_use: AbstractSet[str], now: float, recovery: float
) -> tuple[Remembered, tuple[CardReading, ...]]:
    """Returns what to remember, and the GPUs, each with its problem. `told` is a text if the driver did not
    answer; `in_use` are GPUs with grants; a GPU recovers `recovery` seconds after its last fault.
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

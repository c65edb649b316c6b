"""Reads and writes the annotation `cotenant.dev/defrag`: pods are moved off GPUs of this node, and for whom.

A command writes it beside the drained marks of these GPUs, and removes both when it is done. It says until
when the command may work: if it was killed, the next one puts the GPUs back after that. While room is being
opened for a pod, the line holds no other GPUs for it: they would be in the way of the pods that are moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from cotenant.dialects import names
from cotenant.kube.api.objects import Node


class OpeningMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the annotation says."""

    cards: tuple[str, ...] = ()
    """UUIDs of the GPUs that were drained."""
    until: datetime | None = None
    pod: str = ""
    """UID of the pod that the room is for; empty if it is for none."""

    def is_over(self, now: float) -> bool:
        return self.until is None or self.until.timestamp() <= now


def mark_of(node: Node) -> OpeningMark | None:
    """Decodes the annotation; one that is not valid is over."""
    text = node.metadata.annotations.get(names.DEFRAG)
    if text is None:
        return None
    try:
        mark = msgspec.json.decode(text, type=OpeningMark)
    except msgspec.MsgspecError:
        return OpeningMark()
    return OpeningMark(mark.cards) if mark.until is not None and mark.until.tzinfo is None else mark


def write_mark(cards: Iterable[str], until: float, pod: str) -> str:
    """Encodes the annotation; `until` is a Unix time."""
    mark = OpeningMark(tuple(sorted(cards)), datetime.fromtimestamp(until, UTC), pod)
    return msgspec.json.encode(mark).decode()


def opened_for(nodes: Iterable[Node], now: float) -> frozenset[str]:
    """Returns the UIDs of the pods for which room is being opened."""
    marks = (mark_of(node) for node in nodes)
    return frozenset(mark.pod for mark in marks if mark is not None and mark.pod and not mark.is_over(now))

"""Memory of a card that no grant covers: no new grant may count on it.

What a pod's processes hold up to its grant is covered. All else that is in use is outside: processes of no
pod, of pods without a grant, and what a pod holds beyond its grant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cotenant.hardware.nvml import CardReading

STEP = 16 << 20
"""What is told is rounded up to it, so that it does not change for nothing."""
NOISE = 64 << 20
"""Drivers report a few MiB in use on a card that nobody uses: it may still be granted whole."""


class Outside(NamedTuple):
    bytes: int
    """To be told."""
    unexplained: int
    """Bytes in use that no process answers for. While somebody allocates they appear for a moment, so they
    count only if the survey before saw them too.
    """


def outside_of(
    card: CardReading,
    pods: Mapping[int, str | None],
    granted: Mapping[str, int],
    counted: Mapping[str, int],
    before: int | None,
) -> Outside:
    """`pods` by pid; `granted` bytes on this card and `counted` bytes of the slots' usage by pod UID;
    `before` what was unexplained at the last survey, None at the first.
    """
    if not all(process.bytes is not None for process in card.processes):
        return _by_slots(card, granted, counted)
    held: dict[str | None, int] = {}
    for process in card.processes:
        if process.pid in pods:
            uid = pods[process.pid]
            held[uid] = held.get(uid, 0) + (process.bytes or 0)
    covered = sum(min(size, granted.get(uid or "", 0)) for uid, size in held.items())
    answered = sum(process.bytes or 0 for process in card.processes)
    strange = sum(held.values()) - covered
    unexplained = max(0, card.used - answered)
    counts = unexplained if before is None else min(unexplained, before)
    if counts <= NOISE and not granted and not strange:
        counts = 0
    return Outside(_rounded(strange + counts), unexplained)


def _by_slots(card: CardReading, granted: Mapping[str, int], counted: Mapping[str, int]) -> Outside:
    """Where the driver does not tell what a process holds (some virtual machines): the shim does."""
    covered = sum(min(size, granted.get(uid, 0)) for uid, size in counted.items())
    return Outside(_rounded(max(0, card.used - covered)), 0)


def _rounded(size: int) -> int:
    return -(-size // STEP) * STEP

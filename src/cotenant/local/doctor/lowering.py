"""Computes how far grants on an over-granted GPU must be lowered: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cotenant.hardware.slots import GRANULE


class Held(NamedTuple):
    granted: int
    used: int


def lowered(grants: Mapping[str, Held], capacity: int) -> dict[str, int]:
    """New sizes by id, for those that change.

    Grants give up unused memory, those with the most of it first: no grant loses all of it while another has
    plenty. Memory in use is never taken.
    """
    sizes = {id: held.granted for id, held in grants.items()}
    excess = sum(sizes.values()) - capacity
    spare = sorted(max(0, held.granted - held.used) for held in grants.values())
    if excess <= 0 or not spare:
        return {}
    level = _level(spare, max(0, sum(spare) - excess))
    for id, held in grants.items():
        if held.granted - held.used > level:
            sizes[id] = max(GRANULE, held.used + level)
    return {id: size for id, size in sizes.items() if size < grants[id].granted}


def _level(spare: list[int], left: int) -> int:
    """The most spare memory that each may keep, so that all together keep at most `left`."""
    for at, amount in enumerate(spare):
        share = left // (len(spare) - at)
        if amount > share:
            return share
        left -= amount
    return spare[-1]

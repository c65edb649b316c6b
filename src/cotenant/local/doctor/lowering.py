"""How far grants on an over-granted card must come down: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cotenant.hardware.slots import GRANULE


class Held(NamedTuple):
    granted: int
    used: int


def lowered(grants: Mapping[str, Held], capacity: int) -> dict[str, int]:
    """New sizes by id, for those that change.

    What lies unused is given up first where there is most of it, so that none is left without any spare while
    another has plenty; what is in use is never touched.
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
    """The most spare that each may keep so that all together keep no more than `left`."""
    for at, amount in enumerate(spare):
        share = left // (len(spare) - at)
        if amount > share:
            return share
        left -= amount
    return spare[-1]

"""Rounds figures up to sizes that people would write."""

from __future__ import annotations

import math

HEADROOM = 10
"""Percent above the peak of a single run: the next run may need a little more."""
_FINENESS = 8
_FINEST = 32 << 20
"""Bytes: after one run a suggestion is a round figure, in steps of an eighth of it or less, and not of single
MiB.
"""
ADVICE_FINENESS = 64
"""Advice from a long history is rounded by less than 1/64, so that rounding wastes next to nothing."""


def would_do(peak: int) -> int:
    """Returns the bytes to ask for on one GPU if at most `peak` were in use there: 3.5Gi for 3.1Gi."""
    return round_up(peak * (100 + HEADROOM) // 100, _FINENESS, _FINEST)


def round_up(need: float, fineness: int, finest: int = 1) -> int:
    """Rounds up to a multiple of the largest `finest` times a power of two within `need / fineness`."""
    whole = math.ceil(need)
    step = finest
    while step * 2 <= whole // fineness:
        step *= 2
    return -(-whole // step) * step

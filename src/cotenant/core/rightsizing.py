"""Suggests how much GPU memory to ask for, from the most that was in use."""

from __future__ import annotations

HEADROOM = 10
"""Percent above the peak: the next run may need a little more."""
_FINENESS = 8
_FINEST = 32 << 20
"""Bytes: a suggestion is a round figure, in steps of an eighth of it or less, and not of single MiB."""


def would_do(peak: int) -> int:
    """Returns the bytes to ask for on one GPU if at most `peak` were in use there: 3.5Gi for 3.1Gi."""
    need = peak * (100 + HEADROOM) // 100
    step = _FINEST
    while step * 2 <= need // _FINENESS:
        step *= 2
    return -(-need // step) * step

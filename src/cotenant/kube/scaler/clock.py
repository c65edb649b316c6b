"""Gives wall-clock time that never jumps, so that no timer ends because somebody has set a clock.

It starts at the machine's time and then runs by the monotonic clock. Towards the machine's time it moves by
at most 1% of the time that passes: a clock that was set right is followed in the end, and a threshold is
wrong by 1% at most meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_SLEW = 0.01


@dataclass
class SteadyClock:
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _now: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._now, self._at = self.wall(), self.monotonic()

    def __call__(self) -> float:
        """Returns Unix time in seconds."""
        at = self.monotonic()
        passed = max(0.0, at - self._at)
        most = _SLEW * passed
        expected = self._now + passed
        self._now = expected + max(-most, min(most, self.wall() - expected))
        self._at = at
        return self._now

    def no_later(self) -> float:
        """Returns the earlier one of it and the machine's time, to compare with times that others wrote: a
        machine that starts with a clock that is hours ahead is set right soon, and this one only in weeks.
        """
        return min(self(), self.wall())

"""Decides when an idle workload gives its GPUs back: a fixed threshold, or one learned from past gaps.

A GPU that nobody wants costs nothing to hold, so there are two figures: the threshold, and a shorter one that
counts while a demand in the line could start with what this workload holds.

The learned threshold (`auto`) weighs the GPU's time against a cold start. Keeping a GPU for as long as a wake
costs is never worse than twice the best that is possible; from eight gaps on, the cheapest candidate is taken
if it saves a tenth of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cotenant.core.errors import BadInput

WHEN_OTHERS_WAIT: Final = 60.0
"""Seconds."""
LONGEST: Final = 10 * 365 * 86400.0
"""Seconds. A longer threshold is a mistake; without one nothing is released."""
CANDIDATES: Final = (15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 960, 1440, 1800, 2700, 3600)
"""Thresholds in seconds among which `auto` learns."""
WAITING_COST: Final = 10.0
"""A second that a user waits for a cold start, in seconds of a GPU."""
FORGOTTEN: Final = 0.97
"""What each gap leaves of the costs before it."""
ENOUGH_GAPS: Final = 8
WORTH: Final = 0.9
"""A candidate must cost less than this part of what the safe threshold costs."""


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """After how many idle seconds a workload gives its GPUs back."""

    threshold: float | Literal["auto"] | None = None
    """None: never."""
    when_others_wait: float | None = WHEN_OTHERS_WAIT
    """Counts while others wait, if it is shorter. None: the threshold is the same then."""

    def __post_init__(self) -> None:
        for name in ("threshold", "when_others_wait"):
            value = getattr(self, name)
            if value is None or (name == "threshold" and value == "auto"):
                continue
            if not isinstance(value, int | float) or not 0 < value <= LONGEST:
                raise BadInput(f"idle {name}: {value!r} is not a number of seconds above 0, such as 900")

    def seconds(self, cold_start: float, waited: bool, gaps: Gaps | None = None) -> float | None:
        """Returns the threshold that counts now; None: nothing is released."""
        threshold = self.threshold
        if threshold == "auto":
            threshold = (gaps or Gaps()).threshold(cold_start)
        if threshold is None or not waited or self.when_others_wait is None:
            return threshold
        return min(threshold, self.when_others_wait)

    def released(
        self, idle_for: float, *, waited: bool, cold_start: float = 60.0, gaps: Gaps | None = None
    ) -> bool:
        """Whether a workload that has been idle for `idle_for` seconds gives its GPUs back now."""
        threshold = self.seconds(cold_start, waited, gaps)
        return threshold is not None and idle_for >= threshold


@dataclass(frozen=True, slots=True)
class Gaps:
    """What each candidate would have cost over the past gaps between two pieces of work."""

    known: int = 0
    costs: tuple[float, ...] = (0.0,) * len(CANDIDATES)

    def plus(self, gap: float, cold_start: float) -> Gaps:
        """Counts a gap that has ended. One shorter than every candidate tells nothing."""
        if gap < CANDIDATES[0]:
            return self
        costs = tuple(
            round(FORGOTTEN * cost + (gap if gap <= candidate else candidate + wake_cost(cold_start)), 3)
            for candidate, cost in zip(CANDIDATES, self.costs, strict=True)
        )
        return Gaps(min(self.known + 1, ENOUGH_GAPS), costs)

    def threshold(self, cold_start: float) -> float:
        safe = wake_cost(cold_start)
        if self.known < ENOUGH_GAPS:
            return safe
        cost_of_safe = next(
            (cost for candidate, cost in zip(CANDIDATES, self.costs, strict=True) if candidate >= safe),
            self.costs[-1],
        )
        cost, cheapest = min(zip(self.costs, CANDIDATES, strict=True))
        return float(cheapest) if cost <= WORTH * cost_of_safe else safe


def wake_cost(cold_start: float) -> float:
    """Returns what a wake costs, in seconds of a GPU: loading, and those who wait for it."""
    return max(cold_start, 1.0) * (1 + WAITING_COST)

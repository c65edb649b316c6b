"""Respects a person who scales a target by hand, until the next change of load."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import ceil

from cotenant.core.scaling import Decision, Sample, State

_LASTING = 60.0
"""Seconds for which a workload must be idle before that is a change of load: it may just be between two
messages.
"""


class Load(IntEnum):
    """What was to be done when somebody scaled by hand."""

    WORK = 0
    PAUSE = 1
    """Nothing at that moment, as between two messages."""
    NOTHING = 2
    """Nothing for a while."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """How many replicas somebody wants, and the load at that time."""

    replicas: int
    at: float
    """Unix time."""
    need: int
    """Replicas that the load needed then; -1: not known."""
    load: Load

    @classmethod
    def seen(cls, replicas: int, at: float, decision: Decision, sample: Sample) -> ByHand:
        load = Load.WORK if _works(sample) else Load.PAUSE
        if load is Load.PAUSE and decision.idle_for >= _LASTING:
            load = Load.NOTHING
        return cls(replicas, at, -1 if decision.need is None else decision.need, load)

    def holds(self, decision: Decision, sample: Sample, now: float) -> bool:
        """Reports whether the load is still what it was. An idle workload that was brought back by hand is
        released again after its threshold, counted from then.
        """
        if decision.need is None:
            return True
        none = self.load is Load.NOTHING or (self.load is Load.PAUSE and self.replicas == 0)
        if none and _works(sample):
            return False
        if self.load is Load.WORK and decision.idle_for >= _LASTING:
            return False
        if self.need >= 0 and abs(decision.need - self.need) >= max(1, ceil(self.need / 4)):
            return False
        threshold = decision.idle_threshold
        released = decision.state is State.IDLE and decision.replicas < self.replicas
        return not (released and threshold is not None and now - self.at >= threshold)

    def to_json(self) -> list[float]:
        return [self.replicas, self.at, self.need, int(self.load)]

    @classmethod
    def from_json(cls, stored: object) -> ByHand | None:
        """Reads what `to_json` wrote; None for anything else."""
        if not isinstance(stored, list) or len(stored) != 4:
            return None
        if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in stored):
            return None
        replicas, at, need, load = stored
        if load not in list(Load):
            return None
        return cls(int(replicas), float(at), int(need), Load(int(load)))


def _works(sample: Sample) -> bool:
    return bool(sample.backlog or sample.in_flight)

"""Records what happens in a run in a few numbers, however long it is: turns, states, changes, a timeline."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SLICES = 240
"""Parts of the trace's time for which a plot has one value each."""
MOST_CHANGES = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that changed the wanted number or the state."""

    at: float
    before: int
    wanted: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Values for each slice of the trace's time."""

    wanted: Sequence[int]
    """The highest wanted number."""
    late: Sequence[int]
    """Late requests, by their arrival."""


class Recorder:
    """Takes note of every decision of one run."""

    def __init__(self, replicas: int, horizon: float) -> None:
        self.turns = 0
        """Changes of direction of the wanted number."""
        self.states: Counter[str] = Counter()
        self.changes: list[Change] = []
        """The first of them; at most MOST_CHANGES."""
        self._wanted, self._state, self._direction = replicas, "", 0
        self._horizon = max(horizon, 1e-9)
        self._slices = array("q", [0]) * SLICES
        self._filled = 0

    def note(self, at: float, wanted: int, state: str, reason: str) -> None:
        """Records a decision; `at` never goes back."""
        step = (wanted > self._wanted) - (wanted < self._wanted)
        self.turns += step * self._direction < 0
        self._direction = step or self._direction
        if state:
            self.states[state] += 1
        if (step or state != self._state) and len(self.changes) < MOST_CHANGES:
            self.changes.append(Change(at, self._wanted, wanted, state, reason))
        place = self._place(at)
        for each in range(self._filled, place):
            self._slices[each] = max(self._slices[each], self._wanted)
        self._slices[place] = max(self._slices[place], wanted)
        self._filled, self._wanted, self._state = place, wanted, state

    def timeline(self, arrivals: Sequence[float], waits: Sequence[float], target: float) -> Timeline:
        """Returns the slices; requests that were never started are late."""
        late = array("q", [0]) * SLICES
        for number, wait in enumerate(waits):
            if wait > target:
                late[self._place(arrivals[number])] += 1
        for number in range(len(waits), len(arrivals)):
            late[self._place(arrivals[number])] += 1
        return Timeline(self._slices, late)

    def _place(self, at: float) -> int:
        return min(SLICES - 1, int(at / self._horizon * SLICES))

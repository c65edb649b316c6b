"""Plans replicas with full knowledge of the trace: what no policy can beat by much.

For each block of time the plan finds the fewest replicas with which no request starts late, by trying the
block's requests themselves. A replica that works is not taken away. A replica is started one cold
start before it is needed, and kept where it would be needed again within a cold start: starting anew
would cost the same time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heapreplace

from cotenant.simulate.scaling.observation import Answer, Observation
from cotenant.simulate.scaling.running import Conditions
from cotenant.simulate.scaling.workload import Workload


class Oracle:
    """Follows a plan that was made beforehand."""

    def __init__(self, plan: Sequence[int], period: float) -> None:
        self.period = period
        self._plan = plan

    def decide(self, seen: Observation) -> Answer:
        """Returns what the plan says for this poll."""
        number = round(seen.now / self.period)
        return Answer(self._plan[min(number, len(self._plan) - 1)])

    @property
    def first(self) -> int:
        """The replicas to begin with."""
        return self._plan[0]


def plan(workload: Workload, conditions: Conditions) -> Oracle:
    """Makes a plan for blocks of several lengths, and takes the cheapest.

    Short blocks follow every wave; long ones let a replica that is there anyway work ahead of the next wave.
    """
    poll, cold_start = conditions.poll, conditions.cold_start
    lengths = sorted({max(1, math.ceil(cold_start * part / poll)) for part in (0, 0.25, 0.5, 1)})
    plans = [
        _spread(_needs(workload, conditions, each * poll), each, workload, conditions) for each in lengths
    ]
    return Oracle(min(plans, key=sum), poll)


def _spread(needs: Sequence[int], length: int, workload: Workload, conditions: Conditions) -> list[int]:
    """Returns for each poll the highest need from then until a replica that is started at it is ready."""
    poll = conditions.poll
    ahead = math.ceil(conditions.cold_start / poll)
    polls = math.floor(workload.arrivals[-1] / poll) + 1
    wanted, falling, coming = list[int](), deque[int](), 0
    for number in range(polls):
        while coming < len(needs) and coming * length <= number + ahead:
            while falling and needs[falling[-1]] <= needs[coming]:
                falling.pop()
            falling.append(coming)
            coming += 1
        while len(falling) > 1 and (falling[0] + 1) * length <= number:  # by rounding the last ends early
            falling.popleft()
        wanted.append(needs[falling[0]])
    return wanted


def _needs(workload: Workload, conditions: Conditions, length: float) -> list[int]:
    """Returns for each block of time the fewest replicas with which no request is late."""
    each = conditions.concurrency
    least, most = conditions.minimum * each, conditions.maximum * each
    tries = _Tries(workload, conditions.target)
    found, blocks = list[int](), math.floor(workload.arrivals[-1] / length) + 1
    for number in range(blocks):
        begin = number * length
        end = begin + length if number + 1 < blocks else math.inf  # nothing is planned after the last
        low = max(least, min(most, tries.busy(begin)))
        high = max(low, each * (found[-1] if found else 1))
        while high < most and not tries.do(high, begin, end):
            low, high = high + 1, max(1, min(most, high * 2))
        while low < high:
            middle = (low + high) // 2
            if tries.do(middle, begin, end):
                high = middle
            else:
                low = middle + 1
        high = math.ceil(high / each) * each
        tries.keep(high, begin, end)
        found.append(high // each)
    return found


class _Tries:
    """Tries a number of slots on the requests of one block, and keeps the one that was chosen."""

    def __init__(self, workload: Workload, target: float) -> None:
        self._workload = workload
        self._target = target
        self._slots: list[float] = []
        self._started = 0

    def busy(self, begin: float) -> int:
        """Counts the slots that are still at work: none is taken away from its request."""
        return sum(free > begin for free in self._slots)

    def do(self, slots: int, begin: float, end: float) -> bool:
        """Whether no request is late with this number of slots."""
        return self._play(self._of(slots, begin), end, strict=True) is not None

    def keep(self, slots: int, begin: float, end: float) -> None:
        self._slots = self._of(slots, begin)
        self._started = self._play(self._slots, end, strict=False) or self._started

    def _of(self, count: int, begin: float) -> list[float]:
        """Returns when each slot is free: idle ones go first, as the simulation removes them."""
        slots = sorted(self._slots, reverse=True)[:count] if len(self._slots) > count else [*self._slots]
        slots += [begin] * (count - len(slots))
        heapify(slots)
        return slots

    def _play(self, slots: list[float], until: float, *, strict: bool) -> int | None:
        """Returns the number of started requests; None if one is late and that is not allowed."""
        arrivals, services, target = self._workload.arrivals, self._workload.services, self._target
        number, count = self._started, len(arrivals)
        while number < count and (arrival := arrivals[number]) <= until:
            start = max(arrival, slots[0]) if slots else math.inf
            if strict and start > arrival + target and until > arrival + target:
                return None
            if start > until:
                break
            heapreplace(slots, start + services[number])
            number += 1
        return number

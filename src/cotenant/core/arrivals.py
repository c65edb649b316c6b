"""Remembers how many messages arrived, and the peaks of a need, in a few numbers however long it runs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

SHORTEST: Final = 1.0
"""Seconds between two points that are kept."""
FINENESS: Final = 20
"""A point of age t is kept only if it is t / FINENESS apart from its neighbour."""
RIPPLE: Final = 0.9
LARGEST: Final = 1e12
"""Messages. Above it counts begin anew, so that they stay exact."""
MOST_POINTS: Final = 200
MOST_PEAKS: Final = 64


def counted(last: float | None, value: float | None) -> float | None:
    """Returns by how much a counter rose; None if it is not known at both ends.

    One that goes back was reset, and has counted `value` since.
    """
    if last is None or value is None:
        return None
    return value - last if value >= last else value


def without_ripple(last: float | None, value: float | None) -> float | None:
    """Returns a counter's value, or the last one if it goes back by less than a tenth.

    That is no reset: it was read from another replica of the source, which is a little behind. The whole
    value would count as a burst.
    """
    ripple = last is not None and value is not None and RIPPLE * last <= value < last
    return last if ripple else value


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The number of messages that arrived up to each of some moments, exact between them to a few percent."""

    times: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    def known(self, now: float) -> float:
        return now - self.times[0] if self.times else 0.0

    def plus(self, now: float, arrived: float, horizon: float) -> Arrivals:
        """Adds `arrived` messages since the last moment; what is older than `horizon` is forgotten."""
        counts = self.counts
        if counts and counts[-1] > LARGEST:
            counts = tuple(max(0.0, count - (counts[-1] - LARGEST / 2)) for count in counts)
        total = round((counts[-1] if counts else 0.0) + min(arrived, LARGEST / 2), 3)
        times, counts = (*self.times, now), (*counts, total)
        if len(times) > MOST_POINTS or (len(times) > 2 and times[1] < now - 2 * horizon):
            return _thinned(times, counts, now, horizon)
        return Arrivals(times, counts)

    def within(self, now: float, window: float) -> float:
        """Returns how many messages arrived in the last `window` seconds."""
        times, counts = self.times, self.counts
        if not times:
            return 0.0
        at = now - window
        i = bisect_right(times, at)
        if i == 0:
            return counts[-1] - counts[0]
        if i == len(times):
            return 0.0
        before, after = times[i - 1], times[i]
        share = (at - before) / (after - before)
        return counts[-1] - (counts[i - 1] + share * (counts[i] - counts[i - 1]))


def _thinned(times: tuple[float, ...], counts: tuple[float, ...], now: float, horizon: float) -> Arrivals:
    """Keeps fewer points the older they are, and one at or beyond the horizon."""
    kept = [len(times) - 1]
    for i in range(len(times) - 2, -1, -1):
        if times[kept[-1]] - times[i] >= max(SHORTEST, (now - times[i]) / FINENESS) or i == 0:
            kept.append(i)
            if times[i] <= now - horizon:
                break
    kept.reverse()
    kept = kept[-MOST_POINTS:]
    return Arrivals(tuple(times[i] for i in kept), tuple(counts[i] for i in kept))


@dataclass(frozen=True, slots=True)
class Peaks:
    """The largest of recent values: those that no later value has reached, so they fall with time."""

    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()

    def plus(self, now: float, value: int, window: float) -> Peaks:
        times, values = self.times, self.values
        first, end = 0, len(times)
        while first < end and times[first] < now - window:
            first += 1
        while end > first and values[end - 1] <= value:
            end -= 1
        times, values = (*times[first:end], now), (*values[first:end], value)
        if len(times) > MOST_PEAKS:
            return _merged(times, values)
        return Peaks(times, values)

    @property
    def largest(self) -> int:
        return self.values[0] if self.values else 0


def _merged(times: tuple[float, ...], values: tuple[int, ...]) -> Peaks:
    """Joins the two nearest: the larger value at the later time, so that nothing is forgotten too early."""
    i = min(range(len(times) - 1), key=lambda i: times[i + 1] - times[i])
    return Peaks(times[:i] + times[i + 1 :], values[: i + 1] + values[i + 2 :])

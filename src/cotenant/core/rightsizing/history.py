"""Keeps what one container used of one GPU over time, as the highest sample of each bucket of time.

A bucket is some minutes long. Its highest sample says all that matters for a limit, and a month of 500
containers fits into memory. Times below are numbers of buckets since 1970: a cut at bucket `c` has the
buckets before `c` on one side and those from `c` on the other.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_RESET = 0.99
"""A peak since the start that falls below this part of itself belongs to a new start."""
_STOPPED, _RUNS = 0.1, 0.5
"""Parts of the highest so far: below the first a container has let go of its memory, above the second it has
it again.
"""


@dataclass(frozen=True, slots=True)
class Track:
    """What one container of one pod used of one GPU."""

    instance: str
    """The pod, the container's id or the process; what tells replicas apart."""
    gpu: str
    """Empty where the source does not say which one."""
    buckets: array[int] = field(repr=False)
    """Ascending numbers of the buckets with samples."""
    peaks: array[float] = field(repr=False)
    """The highest of each, in bytes."""
    samples: int
    peak: float
    peak_at: float
    """Unix time of the highest sample, or of the bucket that has it."""
    since_start: bool = False
    """Whether samples are the highest since the container's start, so that no moment was missed."""

    @property
    def first(self) -> int:
        return self.buckets[0]

    @property
    def end(self) -> int:
        """The bucket after the last one with samples."""
        return self.buckets[-1] + 1

    def before(self, cut: int) -> float:
        """Returns the highest before the cut; 0 if there is none."""
        return max(self.peaks[: bisect_left(self.buckets, cut)], default=0.0)

    def between(self, cut: int, end: int) -> float | None:
        """Returns the highest from the cut until before `end`; None if there are no samples."""
        found = self.peaks[bisect_left(self.buckets, cut) : bisect_left(self.buckets, end)]
        return max(found) if found else None

    @property
    def typical(self) -> float:
        """The median of its buckets' peaks."""
        return self.percentile(self.end, 50)

    def percentile(self, cut: int, percent: float) -> float:
        """Returns the percentile of the buckets' peaks before the cut, by nearest rank; 0 without samples."""
        ordered = sorted(self.peaks[: bisect_left(self.buckets, cut)])
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0

    def starts(self, began: int) -> int:
        """Counts the cold starts that it shows, if the source's data begin at bucket `began`.

        A peak since the start includes the start even if that was before. Of plain samples the start is seen
        if they begin later than the data do.
        """
        if self.since_start:
            if sorted(self.peaks) == list(self.peaks):  # as most are, and this is fast
                return 1
            return 1 + sum(b < a * _RESET for a, b in pairwise(self.peaks))
        count, highest, stopped = int(self.first > began + 1), 0.0, False
        if min(self.peaks) >= max(self.peaks) * _STOPPED:
            return count
        for each in self.peaks:
            highest = max(highest, each)
            if each < highest * _STOPPED:
                stopped = True
            elif stopped and each > highest * _RUNS:
                count, stopped = count + 1, False
        return count


class Pool:
    """Containers that are looked at together; the highest of them before a moment is worked out once."""

    __slots__ = ("_known", "tracks")

    def __init__(self, tracks: Sequence[Track]) -> None:
        self.tracks = tuple(tracks)
        self._known: dict[int, float] = {}

    def before(self, cut: int) -> float:
        found = self._known.get(cut)
        if found is None:
            found = self._known[cut] = highest(self.tracks, cut)
        return found


def typical_gap(buckets: Sequence[int]) -> int:
    """Returns the median distance of ascending buckets: 1 if samples come every five minutes or sooner."""
    gaps = sorted(b - a for a, b in pairwise(buckets))
    return gaps[len(gaps) // 2] if gaps else 1


def highest(tracks: Iterable[Track], cut: int) -> float:
    """Returns the highest of all before the cut."""
    return max((each.before(cut) for each in tracks), default=0.0)


def span(tracks: Sequence[Track]) -> tuple[int, int]:
    """Returns the first bucket of all, and the one after the last."""
    return min(each.first for each in tracks), max(each.end for each in tracks)

"""Splits the history at past moments, to see how far peaks passed those that were known before.

A split has a part before it and one after it that is as long: advice is meant for a time as long as
the history that it was made from. What was known at the split makes a figure, and each container's peak after
it is held against that figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cotenant.core.rightsizing.groups import Group
from cotenant.core.rightsizing.history import Track, highest

SPLITS = ((1 / 3, 2 / 3), (1 / 2, 1.0))
"""Where the part before ends and the part after ends, as parts of the whole time."""
LEAST_KNOWN = 4
"""A group takes part if it was known for a quarter of the least history or longer."""
FOLDS = 5
MOST_PAIRS = 4000
"""More would change no figure, and each costs time."""
MOST_SLACK = 3.0
"""A container that hardly uses its GPU any more counts with this slack at most, or it would decide alone."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What was known of a container's group at a split, and what came."""

    lag: float
    growth: float
    """The container's peak after the split, as a multiple of the group's peak before it."""
    unit: int
    """The number of its workload, or of its container where there are few workloads: what happens to one pair
    of a unit often happens to the others at the same time.
    """
    weight: float = 1.0

    @property
    def fold(self) -> int:
        """Pairs of one unit are in one fold, so that none is judged by what was learned from its like."""
        return self.unit % FOLDS


@dataclass(frozen=True, slots=True)
class Score:
    """How a rule did in the past."""

    miss: float
    """The part of containers whose peak later passed the figure, from 0 to 1."""
    slack: float
    """The mean of what the figure was above the later peak, as a part of that peak."""
    containers: int
    """How many times a container was looked at."""


def lag_of(group: Group, cut: int) -> float:
    """Measures how far its peak is below the highest of its siblings: the logarithm of their ratio."""
    own, most = highest(group.tracks, cut), group.siblings.before(cut)
    return math.log(most / own) if own > 0 and most > own else 0.0


def known(group: Group, cut: int) -> Group | None:
    """Returns the group with the containers that were there before the cut; None if none used its GPU."""
    tracks = tuple(each for each in group.tracks if each.first < cut)
    if not tracks or highest(tracks, cut) <= 0:
        return None
    return replace(group, tracks=tracks)


def splits(
    groups: Sequence[Group], first: int, end: int, least: int
) -> Iterator[tuple[Group, int, Track, float]]:
    """Yields for each split the group as it was known, the split's bucket, a container and its peak after it.

    `least` is the least history that advice needs, in buckets.
    """
    for before, after in SPLITS:
        cut, stop = first + round((end - first) * before), first + round((end - first) * after)
        for group in groups:
            seen = known(group, cut)
            if seen is None or (cut - min(each.first for each in seen.tracks)) * LEAST_KNOWN < least:
                continue
            for track in group.tracks:
                peak = track.between(cut, stop)
                if peak is not None and peak > 0:
                    yield seen, cut, track, peak


def pairs(groups: Sequence[Group], first: int, end: int, least: int) -> list[Pair]:
    """Lists what happened after each split, for learning; at most MOST_PAIRS, evenly chosen."""
    found: list[Pair] = []
    group, at, lag, own = None, -1, 0.0, 0.0
    units = _units(groups)
    for seen, cut, track, peak in splits(groups, first, end, least):
        if group is None or seen is not group or cut != at:
            group, at = seen, cut
            lag, own = lag_of(seen, cut), highest(seen.tracks, cut)
        unit = units.get((seen.owner.workload, ""))
        if unit is None:
            unit = units[seen.owner.workload, track.instance]
        found.append(Pair(lag, peak / own, unit))
    if len(found) <= MOST_PAIRS:
        return found
    return [found[number * len(found) // MOST_PAIRS] for number in range(MOST_PAIRS)]


def _units(groups: Sequence[Group]) -> dict[tuple[str, str], int]:
    """Numbers the workloads, or the single instances if there are too few workloads."""
    apart = {(each.owner.workload, "") for each in groups}
    if len(apart) < FOLDS:
        apart = {(each.owner.workload, track.instance) for each in groups for track in each.tracks}
    return {key: number for number, key in enumerate(sorted(apart))}


def score(
    groups: Sequence[Group], first: int, end: int, least: int, figure: Callable[[Group, int], float]
) -> Score | None:
    """Measures a rule that makes a figure of a group at a cut; None if there is nothing to measure it by."""
    missed = count = 0
    slack = size = 0.0
    group, at = None, -1
    for seen, cut, _, peak in splits(groups, first, end, least):
        if seen is not group or cut != at:
            group, at, size = seen, cut, figure(seen, cut)
        missed += peak > size
        slack += slack_of(size / peak)
        count += 1
    return Score(missed / count, slack / count, count) if count else None


def slack_of(times: float) -> float:
    """Returns the slack of a figure that is so many times the peak."""
    return min(MOST_SLACK, max(0.0, times - 1))

"""Learns how much above the peak to advise, from how peaks grew in the history itself.

Headroom has two parts. `base` is for everybody. `reach` is for containers whose peak is below that of their
siblings: what one replica has met, another will meet. How much each counts is chosen from a small grid by
back-test: two parameters, so that little data cannot mislead it. (Parts for containers whose peaks are
uneven, new or growing were tried, and gained nothing on traces that they were not fitted to.) Where data
are very few, a prior of typical containers decides.

Two figures are bounded, the rate of misses and the slack. The choice is the rule that most likely keeps both:
each is taken to be what the back-test measured, give or take a standard error. Of rules that are as likely
the one with the least slack is taken. Where both cannot be kept, slack is, with as few misses as it allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from cotenant.core.rightsizing.backtest import FOLDS, SPLITS, Pair, Score, slack_of

FLOOR = 0.15
"""Headroom is never less: a peak is seldom the last."""
MISS, SLACK = 0.05, 0.40
"""The bounds."""
CAP = 0.5
"""A container that is further below its siblings than this gets no more for it."""

_BASE = (0.15, 0.17, 0.19, 0.21, 0.23, 0.25, 0.27, 0.30, 0.33, 0.36, 0.40, 0.45, 0.50)
_REACH = (0.0, 0.25, 0.5, 0.75, 1.0)

_MISS_ERROR, _SLACK_ERROR = 0.01, 0.04
"""Standard errors of both, however many containers were seen: the time to come is not the history. That of
misses comes on top of their chance error.
"""
_AS_LIKELY = 0.01
"""Rules whose chances differ by less, as a part of them, are as likely to keep both bounds."""
MOST = 2.0
"""A peak that grows more than this, as when a container first loads its model, is out of reach of any
headroom.
"""
_PRIOR_WEIGHT = 40.0
"""The prior counts as this many pairs."""
_PRIOR = tuple(
    Pair(lag, growth, -1, weight)
    for lag, growth, weight in (
        (0.0, 1.00, 0.750),
        (0.0, 1.17, 0.030),
        (0.0, 1.20, 0.020),
        (0.0, 1.24, 0.015),
        (0.0, 1.29, 0.010),
        (0.0, 1.40, 0.010),
        (0.0, 1.80, 0.005),
        (0.3, 1.00, 0.120),
        (0.3, 1.33, 0.040),
    )
)
"""Typical containers: most stay at their peak, some pass it by a little, and one in four that is below its
siblings comes up to them.
"""


@dataclass(frozen=True, slots=True)
class Headroom:
    """A rule for headroom; both parts are fractions of the peak."""

    base: float
    reach: float = 0.0
    """Of the distance to the highest sibling."""

    def of(self, lag: float) -> float:
        """Returns the headroom of one group, as a fraction of its peak."""
        return max(FLOOR, self.base + self.reach * min(lag, CAP))


@dataclass(frozen=True, slots=True)
class Learned:
    headroom: Headroom
    score: Score | None
    """What the rule did on containers that it was not learned from; None without any."""
    pairs: int
    """How many times a container was looked at."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    miss: float
    slack: float


@dataclass(slots=True)
class _Sums:
    weight: float = 0.0
    missed: float = 0.0
    out_of_reach: float = 0.0
    """Of those that were missed, what no rule of the grid would have covered."""
    slack: float = 0.0

    def plus(self, other: _Sums, times: float = 1.0) -> _Sums:
        return _Sums(
            self.weight + times * other.weight,
            self.missed + times * other.missed,
            self.out_of_reach + times * other.out_of_reach,
            self.slack + times * other.slack,
        )


def learn(pairs: Sequence[Pair], miss: float = MISS, slack: float = SLACK) -> Learned:
    """Chooses the headroom that most likely keeps the rate of misses and the slack within their bounds."""
    reaches = _REACH if any(pair.lag > 0 for pair in pairs) else _REACH[2:3]
    grid = [Headroom(*each) for each in product(_BASE, reaches)]
    prior = [_sums(rule, _PRIOR, 1)[0] for rule in grid]
    by_fold = [_sums(rule, pairs, FOLDS) for rule in grid]
    total = []
    for folds in by_fold:
        added = _Sums()
        for each in folds:
            added = added.plus(each)
        total.append(added)
    bounds = _Bounds(miss, slack)
    chosen = grid[_best(total, prior, bounds)]
    return Learned(chosen, _validated(by_fold, total, prior, bounds), len(pairs))


def _sums(rule: Headroom, pairs: Sequence[Pair], folds: int) -> list[_Sums]:
    found = [_Sums() for _ in range(folds)]
    for pair in pairs:
        size = 1 + rule.of(pair.lag)
        sums = found[pair.fold]
        sums.weight += pair.weight
        if pair.growth > size:
            sums.missed += pair.weight
            if pair.growth > MOST:
                sums.out_of_reach += pair.weight
        else:
            sums.slack += pair.weight * slack_of(size / pair.growth)
    return found


def _best(total: Sequence[_Sums], prior: Sequence[_Sums], bounds: _Bounds) -> int:
    """Returns the number of the rule that most likely keeps both bounds, with the least slack of equals."""
    seen = [
        each.plus(typical, _PRIOR_WEIGHT / typical.weight) for each, typical in zip(total, prior, strict=True)
    ]
    within = [number for number, each in enumerate(seen) if each.slack <= bounds.slack * each.weight]
    chances = {number: _chance(seen[number], bounds) for number in within or range(len(seen))}
    likely = max(chances.values()) - _AS_LIKELY
    return min(
        (number for number, chance in chances.items() if chance >= likely),
        key=lambda number: (seen[number].slack, number),
    )


def _chance(seen: _Sums, bounds: _Bounds) -> float:
    """Returns the logarithm of the chance that a rule keeps both bounds.

    Where what is out of reach is more than the bound by itself, it does not count: the bound cannot be kept,
    and headroom for everybody would be wasted on it.
    """
    hopeless = seen.out_of_reach > bounds.miss * seen.weight
    missed = max(0.0, seen.missed - (seen.out_of_reach if hopeless else 0.0)) / seen.weight
    containers = seen.weight / len(SPLITS)
    error = math.sqrt(missed * (1 - missed) / containers + _MISS_ERROR**2)
    return _log_normal((bounds.miss - missed) / error) + _log_normal(
        (bounds.slack - seen.slack / seen.weight) / _SLACK_ERROR
    )


def _log_normal(deviations: float) -> float:
    """Returns the logarithm of the chance that a normal variable is below so many standard deviations."""
    return math.log(max(math.erfc(-deviations / math.sqrt(2)) / 2, 1e-300))


def _validated(
    by_fold: Sequence[Sequence[_Sums]], total: Sequence[_Sums], prior: Sequence[_Sums], bounds: _Bounds
) -> Score | None:
    """Measures each fold by the rule that the other folds choose."""
    seen = _Sums()
    for fold in range(FOLDS):
        others = [every.plus(folds[fold], -1.0) for every, folds in zip(total, by_fold, strict=True)]
        seen = seen.plus(by_fold[_best(others, prior, bounds)][fold])
    if not seen.weight:
        return None
    return Score(seen.missed / seen.weight, seen.slack / seen.weight, round(seen.weight))

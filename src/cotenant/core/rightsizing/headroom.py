"""Learns how much above the peak to advise, from how peaks grew in the history itself.

Headroom has two parts. `base` is for everybody. `reach` is for containers whose peak is below that of their
siblings: what one replica has met, another will meet. How much each counts is chosen from a small grid by
back-test: two parameters, so that little data cannot mislead it. (Parts for containers whose peaks are
uneven, new or growing, or whose siblings grew, were tried, and gained nothing on traces that they were not
fitted to.) Where data are very few, a prior of typical containers decides.

Two figures are bounded, the rate of misses and the slack. The choice is the rule that most likely keeps both:
each is taken to be what the back-test measured, give or take a standard error. A workload with many
containers says less than as many workloads, since what it does next it does to all of them. Of rules that are
as likely the one with the least slack is taken. Where both cannot be kept, slack is, with as few misses as it
allows.

Slack is counted with caution: growth of the past takes up headroom, and may not go on. So of each growth only
the square root counts there, half of it on the scale of factors.
"""

from __future__ import annotations

import math
from collections import Counter
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

_MISS_ERROR, _SLACK_ERROR = 0.02, 0.02
"""Standard errors of both, however many containers were seen: the time to come is not the history. Their
chance errors come on top.
"""
_TOGETHER = 0.1
"""How much containers of one workload have in common: the correlation of what happens to two of them."""
_AS_LIKELY = 0.01
"""Rules whose chances differ by less, as a part of them, are as likely to keep both bounds."""
MOST = 2.0
"""A peak that grows more than this, as when a container first loads its model, is out of reach of any
headroom.
"""
_PRIOR_WEIGHT = 10.0
"""The prior counts as this many containers that have nothing in common."""
_PRIOR = tuple(
    Pair(lag, growth, 0, weight)
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


@dataclass(slots=True)
class _Sums:
    weight: float = 0.0
    missed: float = 0.0
    out_of_reach: float = 0.0
    """Of those that were missed, what no rule of the grid would have covered."""
    slack: float = 0.0
    wasted: float = 0.0
    """The slack if only half of all growth goes on."""
    wasted_squares: float = 0.0

    def plus(self, other: _Sums, times: float = 1.0) -> _Sums:
        return _Sums(
            self.weight + times * other.weight,
            self.missed + times * other.missed,
            self.out_of_reach + times * other.out_of_reach,
            self.slack + times * other.slack,
            self.wasted + times * other.wasted,
            self.wasted_squares + times * other.wasted_squares,
        )

    def scaled(self, weight: float) -> _Sums:
        return _Sums().plus(self, weight / self.weight if self.weight else 0.0)


def learn(pairs: Sequence[Pair], miss: float = MISS, slack: float = SLACK) -> Learned:
    """Chooses the headroom that most likely keeps the rate of misses and the slack within their bounds."""
    reaches = _REACH if any(pair.lag > 0 for pair in pairs) else _REACH[2:3]
    grid = [Headroom(*each) for each in product(_BASE, reaches)]
    prior = [_sums(rule, _PRIOR, 1)[0].scaled(_PRIOR_WEIGHT) for rule in grid]
    by_fold = [_sums(rule, pairs, FOLDS) for rule in grid]
    total = []
    for folds in by_fold:
        added = _Sums()
        for each in folds:
            added = added.plus(each)
        total.append(added)
    search = _Search(prior, _independent(pairs) / max(1, len(pairs)), miss, slack)
    chosen = grid[search.best(total)]
    return Learned(chosen, _validated(by_fold, total, search), len(pairs))


def _independent(pairs: Sequence[Pair]) -> float:
    """Returns how many containers without anything in common would say as much as these: each split looks at
    the same containers again, and those of one unit are alike.
    """
    sizes = Counter(pair.unit for pair in pairs)
    containers = len(pairs) / len(SPLITS)
    if not containers:
        return 0.0
    together = sum((size / len(SPLITS)) ** 2 for size in sizes.values()) / containers
    return containers / (1 + _TOGETHER * max(0.0, together - 1))


def _sums(rule: Headroom, pairs: Sequence[Pair], folds: int) -> list[_Sums]:
    found = [_Sums() for _ in range(folds)]
    for pair in pairs:
        size, growth, weight = 1 + rule.of(pair.lag), pair.growth, pair.weight
        sums = found[pair.unit % folds]
        sums.weight += weight
        if growth > size:
            sums.missed += weight
            if growth > MOST:
                sums.out_of_reach += weight
        else:
            sums.slack += weight * slack_of(size / growth)
        wasted = slack_of(size / (math.sqrt(growth) if growth > 1 else growth))
        sums.wasted += weight * wasted
        sums.wasted_squares += weight * wasted * wasted
    return found


@dataclass(frozen=True, slots=True)
class _Search:
    """Finds the rule of the grid that most likely keeps both bounds."""

    prior: Sequence[_Sums]
    """Of each rule, weighted."""
    independent: float
    """How many independent containers a pair stands for."""
    miss: float
    slack: float

    def best(self, total: Sequence[_Sums]) -> int:
        """Returns the number of the rule, the one with the least slack of equals."""
        seen = [
            each.scaled(each.weight * self.independent).plus(typical)
            for each, typical in zip(total, self.prior, strict=True)
        ]
        within = [number for number, each in enumerate(seen) if each.wasted <= self.slack * each.weight]
        chances = {number: self._chance(seen[number]) for number in within or range(len(seen))}
        likely = max(chances.values()) - _AS_LIKELY
        return min(
            (number for number, chance in chances.items() if chance >= likely),
            key=lambda number: (seen[number].wasted, number),
        )

    def _chance(self, seen: _Sums) -> float:
        """Returns the logarithm of the chance that a rule keeps both bounds.

        Where what is out of reach is more than the bound by itself, it does not count: the bound cannot be
        kept, and headroom for everybody would be wasted on it.
        """
        hopeless = seen.out_of_reach > self.miss * seen.weight
        missed = max(0.0, seen.missed - (seen.out_of_reach if hopeless else 0.0)) / seen.weight
        wasted = seen.wasted / seen.weight
        spread = max(0.0, seen.wasted_squares / seen.weight - wasted**2)
        miss_error = math.sqrt(missed * (1 - missed) / seen.weight + _MISS_ERROR**2)
        slack_error = math.sqrt(spread / seen.weight + _SLACK_ERROR**2)
        return _log_normal((self.miss - missed) / miss_error) + _log_normal(
            (self.slack - wasted) / slack_error
        )


def _log_normal(deviations: float) -> float:
    """Returns the logarithm of the chance that a normal variable is below so many standard deviations."""
    return math.log(max(math.erfc(-deviations / math.sqrt(2)) / 2, 1e-300))


def _validated(by_fold: Sequence[Sequence[_Sums]], total: Sequence[_Sums], search: _Search) -> Score | None:
    """Measures each fold by the rule that the other folds choose."""
    seen = _Sums()
    for fold in range(FOLDS):
        others = [every.plus(folds[fold], -1.0) for every, folds in zip(total, by_fold, strict=True)]
        seen = seen.plus(by_fold[search.best(others)][fold])
    if not seen.weight:
        return None
    return Score(seen.missed / seen.weight, seen.slack / seen.weight, round(seen.weight))

"""Learns how much above the peak to advise, from how peaks grew in the history itself.

Headroom has two parts. `base` is for everybody. `reach` is for containers whose peak is below that of their
siblings: what one replica has met, another will meet. How much each counts is chosen from a small grid by
back-test: two parameters, so that little data cannot mislead it. (Parts for containers whose peaks are
uneven, new or growing were tried, and gained nothing on traces that they were not fitted to.) Where data
are very few, a prior of typical containers decides.

Two figures are bounded, the rate of misses and the slack, and the choice keeps both as far below their
bounds as possible, measured in parts of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from cotenant.core.rightsizing.backtest import FOLDS, SPLITS, Pair, Score, slack_of

FLOOR = 0.15
"""Headroom is never less: a peak is seldom the last."""
MISS, SLACK = 0.05, 0.36
"""The bounds. Slack is meant to stay below 0.40 also if the time to come is quieter than the history was."""
CAP = 0.5
"""A container that is further below its siblings than this gets no more for it."""

_BASE = (0.15, 0.17, 0.19, 0.21, 0.23, 0.25, 0.27, 0.30, 0.33, 0.36, 0.40, 0.45, 0.50)
_REACH = (0.0, 0.25, 0.5, 0.75, 1.0)

_ERRORS = 2.0
"""Standard errors with which a rate of misses counts: of few containers, one more may miss by chance."""
_FEW = 50
"""Containers that are added to those seen for that: the chance of very few is no reason to waste memory."""
MOST = 2.0
"""A peak that grows more than this, as when a container first loads its model, is out of reach of any
headroom. It counts as a miss, and does not move the choice: headroom for everybody would be wasted on it.
"""
_PRIOR_WEIGHT = 10.0
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


@dataclass(slots=True)
class _Sums:
    weight: float = 0.0
    missed: float = 0.0
    in_reach: float = 0.0
    """Of those that were missed, what some rule of the grid would have covered."""
    slack: float = 0.0

    def plus(self, other: _Sums, sign: float = 1.0) -> _Sums:
        return _Sums(
            self.weight + sign * other.weight,
            self.missed + sign * other.missed,
            self.in_reach + sign * other.in_reach,
            self.slack + sign * other.slack,
        )


def learn(pairs: Sequence[Pair], miss: float = MISS, slack: float = SLACK) -> Learned:
    """Chooses the headroom that keeps the rate of misses and the slack farthest below their bounds."""
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
    chosen = grid[_best(total, prior, miss, slack)]
    return Learned(chosen, _validated(by_fold, total, prior, miss, slack), len(pairs))


def _sums(rule: Headroom, pairs: Sequence[Pair], folds: int) -> list[_Sums]:
    found = [_Sums() for _ in range(folds)]
    for pair in pairs:
        size = 1 + rule.of(pair.lag)
        sums = found[pair.fold]
        sums.weight += pair.weight
        if pair.growth > size:
            sums.missed += pair.weight
            if pair.growth <= MOST:
                sums.in_reach += pair.weight
        else:
            sums.slack += pair.weight * slack_of(size / pair.growth)
    return found


def _best(total: Sequence[_Sums], prior: Sequence[_Sums], miss: float, slack: float) -> int:
    """Returns the number of the rule whose worse figure, in parts of its bound, is the best; of equals the
    first, which has the least headroom.
    """

    def cost(number: int) -> float:
        seen, typical = total[number], prior[number]
        weight = seen.weight + _PRIOR_WEIGHT
        missed = (seen.in_reach + _PRIOR_WEIGHT * typical.in_reach / typical.weight) / weight
        wasted = (seen.slack + _PRIOR_WEIGHT * typical.slack / typical.weight) / weight
        containers = seen.weight / len(SPLITS) + _FEW
        error = math.sqrt(max(0.0, missed * (1 - missed)) / containers)
        return max((missed + _ERRORS * error) / miss, wasted / slack)

    return min(range(len(total)), key=lambda number: (round(cost(number), 9), number))


def _validated(
    by_fold: Sequence[Sequence[_Sums]],
    total: Sequence[_Sums],
    prior: Sequence[_Sums],
    miss: float,
    slack: float,
) -> Score | None:
    """Measures each fold by the rule that the other folds choose."""
    seen = _Sums()
    for fold in range(FOLDS):
        others = [every.plus(folds[fold], -1.0) for every, folds in zip(total, by_fold, strict=True)]
        seen = seen.plus(by_fold[_best(others, prior, miss, slack)][fold])
    if not seen.weight:
        return None
    return Score(seen.missed / seen.weight, seen.slack / seen.weight, round(seen.weight))

"""Lists the rules by which a figure is made of a history: the default and those that it is compared with.

A strategy is a function of a group and a moment, so that each can be tried on the past. Percentiles are in
the table for comparison only. An allocation that does not fit fails at once: a program is not slowed down for
a while, as by a lack of CPU, but ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cotenant.core.rightsizing.backtest import lag_of
from cotenant.core.rightsizing.groups import Group
from cotenant.core.rightsizing.headroom import FLOOR, Headroom
from cotenant.core.rightsizing.history import highest

Figure = Callable[[Group, int], float]
"""Makes the bytes on one GPU that a group should ask for, from what was known before a bucket."""


@dataclass(frozen=True, slots=True)
class Strategy:
    about: str
    make: Callable[[Headroom], Figure]
    """Makes the rule with this headroom."""
    learns: bool = False
    """Whether headroom is learned from the history; otherwise it is FLOOR unless somebody sets it."""


def _peak(headroom: Headroom, group: Group, cut: int) -> float:
    return highest(group.tracks, cut) * (1 + headroom.of(lag_of(group, cut)))


def _pool(headroom: Headroom, group: Group, cut: int) -> float:
    return group.siblings.before(cut) * (1 + headroom.base)


def _percentile(percent: float, headroom: Headroom, group: Group, cut: int) -> float:
    return max(each.percentile(cut, percent) for each in group.tracks) * (1 + headroom.base)


def _max(headroom: Headroom, group: Group, cut: int) -> float:
    return highest(group.tracks, cut) * (1 + headroom.base)


def _with(rule: Callable[[Headroom, Group, int], float]) -> Callable[[Headroom], Figure]:
    return lambda headroom: partial(rule, headroom)


DEFAULT = "peak"
STRATEGIES: dict[str, Strategy] = {
    DEFAULT: Strategy("the pooled peak and headroom learned from how peaks grew", _with(_peak), learns=True),
    "max": Strategy("the peak and 15 %", _with(_max)),
    "pool": Strategy("the highest peak of all containers of the workload and 15 %", _with(_pool)),
    "p99": Strategy("the 99th percentile of 5-minute peaks and 15 %", _with(partial(_percentile, 99))),
    "p95": Strategy("the 95th percentile of 5-minute peaks and 15 %", _with(partial(_percentile, 95))),
    "p90": Strategy("the 90th percentile of 5-minute peaks and 15 %", _with(partial(_percentile, 90))),
}


def fixed(headroom: float) -> Headroom:
    """Makes a rule with the same headroom for everybody."""
    return Headroom(headroom)


LEAST = fixed(FLOOR)

"""Advises how much GPU memory to ask for, from what was in use.

`rounding` makes round figures. `history` keeps what a container used over time, `collecting` fills it from
samples in any order. `groups` decides which containers share one figure. `headroom` learns how much above the
peak is needed, by `backtest` on the history itself. `strategies` is the table of rules, `advice` the result
with its evidence or the reason why there is none, `cards` how many GPUs the figures need.

Only `would_do` is imported here: `cotenant run` starts in milliseconds.
"""

from __future__ import annotations

from cotenant.core.rightsizing.rounding import HEADROOM, would_do

__all__ = ["HEADROOM", "would_do"]

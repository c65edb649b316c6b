"""Observations that are written out, for rules that are checked by hand."""

from __future__ import annotations

from cotenant.simulate.scaling.model_server import Figures, Fleet
from cotenant.simulate.scaling.observation import Observation


def seen(
    now: float,
    backlog: int | None,
    ready: int,
    *,
    starting: int = 0,
    in_flight: int = 0,
    arrived: int = 0,
    area: float = 0.0,
) -> Observation:
    """What a poll brings; `backlog` None: no figures. `area` is the integral of concurrency."""
    figures = None if backlog is None else Figures(now, backlog, in_flight, arrived, 0, area)
    return Observation(now, figures, Fleet(ready, (1.0,) * starting, 0, 0, (), None))

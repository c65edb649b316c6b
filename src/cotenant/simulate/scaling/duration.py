"""Parses the times of a simulation: seconds as a number (0.8, 45) or a Go duration (800ms, 45s, 10m)."""

from __future__ import annotations

import math

from cotenant.core.errors import BadInput
from cotenant.core.units import parse_duration

LONGEST = 366 * 86400.0


def parse_seconds(text: str, field: str) -> float:
    """Returns seconds, zero or more."""
    body = text.strip()
    try:
        seconds = float(body) if len(body) <= 32 else math.nan
    except ValueError:
        seconds = parse_duration(body, field)
    if not 0 <= seconds <= LONGEST:
        raise BadInput(
            f"{field}: {body[:32]!r} is not between 0 and 366 days: write seconds, such as 45, or 10m"
        )
    return seconds

"""Parses times as they stand in files: Unix time in any unit, ISO 8601, and nvidia-smi's own form."""

from __future__ import annotations

import math
from datetime import UTC, datetime

UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
AUTO = "auto"
_LARGEST = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))
"""A larger number is in this unit: as seconds, 1e11 would be in the year 5138, and as milliseconds it is in
1973.
"""
MOST_SECONDS = 1e11


def unit_of(number: float) -> str:
    """Returns the unit that a Unix time of this size must be in."""
    size = abs(number)
    return next((unit for least, unit in _LARGEST if size > least), "s")


def parse_moment(text: str, unit: str = AUTO) -> float:
    """Returns Unix seconds; ValueError if it is no time. Without a zone it is UTC."""
    try:
        number = float(text)
    except ValueError:
        return _date(text)
    if not math.isfinite(number):
        raise ValueError(text)
    seconds = number / UNITS[unit_of(number) if unit == AUTO else unit]
    if abs(seconds) > MOST_SECONDS:
        raise ValueError(text)
    return seconds


def _date(text: str) -> float:
    body = text.strip().removesuffix(" UTC")
    if len(body) > 4 and body[4] == "/":  # nvidia-smi: 2026/01/31 12:00:00.000
        body = body.replace("/", "-")
    try:
        moment = datetime.fromisoformat(body)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        raise ValueError(text) from None

"""Reads Go durations with bounds: `15m`, `1h30m`, `800ms`. One rule for GpuScalers, annotations and files.

What Go and CEL do not read is refused, so that a text means the same to the API server and to us. Unlike Go,
the units must go from the largest to the smallest, each at most once: `30s1m` is a slip more often than not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from cotenant.core.errors import BadInput
from cotenant.core.units import ACCEPTED_DURATION, format_duration, parse_duration

_NUMBER = r"([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})"
GO_DURATION = (
    "^" + "".join(f"({_NUMBER}{unit})?" for unit in ("h", "m", "s", "ms", "(us|\u00b5s)", "ns")) + "$"
)
"""The same regular expression for Python and for CEL. It also matches a text of length 0."""

AUTO: Final = "auto"
"""In place of a threshold: learn it from the gaps between two messages."""

LONGEST = 8760 * 3600.0
"""Seconds: one year."""


@dataclass(frozen=True, slots=True)
class Span:
    """Marks a text that is a Go duration, and bounds it: both ends, in seconds, are allowed."""

    least: float
    most: float
    auto: bool = False
    """Whether `auto` may stand in its place."""

    def __str__(self) -> str:
        bounds = f"from {format_duration(self.least)} to {format_duration(self.most)}"
        return f"{bounds}, or {AUTO}" if self.auto else bounds


_LONGEST_TEXT = 64
THRESHOLD = Span(1.0, LONGEST, auto=True)


def read_duration(text: str, field: str, span: Span = Span(0.0, LONGEST)) -> float:
    """Returns the seconds of a Go duration within `span`; BadInput names the field and the remedy."""
    return _read(text, field, span) if len(text) <= _LONGEST_TEXT else parse_duration(text, field)


@lru_cache(maxsize=1024)
def _read(text: str, field: str, span: Span) -> float:
    """Cached: every poll of every scaler asks for the same few. The text is short: what others write must not
    fill the cache with megabytes.
    """
    seconds = parse_duration(text, field)
    if text != text.strip():
        raise BadInput(f"{field}: {text!r} begins or ends with a space: write {text.strip()}")
    if "d" in text:
        raise BadInput(f"{field}: {text!r} counts in days, which Go durations do not: write 24h for 1d")
    if not re.fullmatch(GO_DURATION, text):
        raise BadInput(
            f"{field}: {text!r} has more than 9 digits in a row: write it like {ACCEPTED_DURATION}"
        )
    if not span.least <= seconds <= span.most:
        raise BadInput(f"{field}: {text!r} is not {span}")
    return seconds


def read_threshold(text: str, field: str) -> float | Literal["auto"]:
    """Returns the seconds after which something idle is released, or `auto`."""
    if text == AUTO:
        return AUTO
    return read_duration(text, field, THRESHOLD)

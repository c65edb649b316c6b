"""Says whether a part of the demo happened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    part: str
    expected: str
    measured: str
    happened: bool

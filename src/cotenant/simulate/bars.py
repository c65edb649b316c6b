"""Draws a row of values as a line of text: one sign for each, the higher the fuller."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS, ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#%@"


def squeeze(values: Sequence[float], columns: int) -> list[float]:
    """Returns the highest value of each column; of fewer values than columns, each several times."""
    count = len(values)
    edges = [round(at * count / columns) for at in range(columns + 1)]
    return [max(values[a:b], default=values[min(a, count - 1)]) for a, b in pairwise(edges)]


def bar(values: Sequence[float], signs: str, highest: float | None = None) -> str:
    """Draws the values up to the highest, or up to a given one."""
    top = max(values) if highest is None else highest
    steps = len(signs) - 1
    return "".join(signs[-(-int(value * steps * 1000 / (top or 1)) // 1000)] for value in values)

"""Writes metrics of the table in Prometheus' text format, for values that are read when they are asked for.

It needs no library: one machine exports its metrics with what the base installation has, and a node with
hundreds of containers is written in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cotenant.observe.metrics import Entry, Kind, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The version that every scraper reads. Ours has no names that need a later one."""

_EXACT = 10**15
"""Integers below it are written as they are."""

Sample = tuple[Sequence[str], float]
"""The values of a metric's labels, in the table's order, and its own."""


class Family(NamedTuple):
    """A metric with its samples."""

    entry: Entry
    samples: Sequence[Sample]


def family(metric: Metric, *samples: Sample) -> Family:
    """A counter or gauge with these samples. No two of them may have the same labels: a scraper would refuse
    or drop them.
    """
    entry = entry_of(metric.value, "counter", "gauge")
    for labels, _ in samples:
        if len(labels) != len(entry.labels):
            raise TypeError(f"{entry.name} has the labels {entry.labels}, not {len(labels)} of them")
    return Family(entry, samples)


def text_of_families(families: Iterable[Family]) -> bytes:
    """Writes them; a label value that cannot be encoded loses what cannot."""
    parts: list[str] = []
    written: dict[tuple[Sequence[str], Sequence[str]], str] = {}
    for each in families:
        _write(each, parts, written)
    return "".join(parts).encode(errors="replace")


def entry_of(entry: Entry, *kinds: Kind) -> Entry:
    """Returns the table's line, and TypeError if it is of another kind."""
    if entry.kind not in kinds:
        raise TypeError(f"{entry.name} is a {entry.kind} in the table of metrics")
    return entry


def _write(family: Family, parts: list[str], written: dict[tuple[Sequence[str], Sequence[str]], str]) -> None:
    """`written`: the labels that other families have, too, as they were written there."""
    entry, samples = family
    name, names = entry.name, entry.labels
    parts.append(f"# HELP {name} {_help(entry.help)}\n# TYPE {name} {entry.kind}\n")
    if not names:
        parts.extend(f"{name} {_number(value)}\n" for _, value in samples)
        return
    for labels, value in samples:
        key = names, labels
        text = written.get(key)
        if text is None:
            text = written[key] = _labels(names, labels)
        parts.append(f"{name}{text}{_number(value)}\n")


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = sorted(zip(names, values, strict=True))
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs]) + "} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if type(value) is int and -_EXACT < value < _EXACT:
        return f"{value}.0"
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"

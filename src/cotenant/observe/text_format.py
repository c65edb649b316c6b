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
    for count in {len(labels) for labels, _ in samples} - {len(entry.labels)}:
        raise TypeError(f"{entry.name} has the labels {entry.labels}, not {count} of them")
    return Family(entry, samples)


def text_of_families(families: Iterable[Family]) -> bytes:
    """Writes them; a label value that cannot be encoded loses what cannot."""
    parts: list[str] = []
    writers: dict[Sequence[str], _Labels] = {}
    escaped = _Escaped()
    for entry, samples in families:
        name, names = entry.name, entry.labels
        parts.append(f"# HELP {name} {_help(entry.help)}\n# TYPE {name} {entry.kind}\n")
        labels_of = writers.get(names)
        if labels_of is None:
            labels_of = writers[names] = _Labels(names, escaped)
        parts += [f"{name}{labels_of[labels]} {_number(value)}\n" for labels, value in samples]
    return "".join(parts).encode(errors="replace")


def entry_of(entry: Entry, *kinds: Kind) -> Entry:
    """Returns the table's line, and TypeError if it is of another kind."""
    if entry.kind not in kinds:
        raise TypeError(f"{entry.name} is a {entry.kind} in the table of metrics")
    return entry


class _Escaped(dict[str, str]):
    """Values of labels as they are written, each worked out once: most are in many series."""

    def __missing__(self, value: str) -> str:
        self[value] = text = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return text


class _Labels(dict[Sequence[str], str]):
    """Labels as they are written, by their values: families with the same names share them."""

    def __init__(self, names: Sequence[str], escaped: _Escaped) -> None:
        super().__init__()
        self._order = sorted(range(len(names)), key=names.__getitem__)
        pairs = ",".join(f'{names[at]}="%s"' for at in self._order)
        self._template = f"{{{pairs}}}" if names else ""
        self._escaped = escaped

    def __missing__(self, values: Sequence[str]) -> str:
        escaped = self._escaped
        self[values] = text = self._template % tuple([escaped[values[at]] for at in self._order])
        return text


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if type(value) is int and -_EXACT < value < _EXACT:
        return f"{value}.0"
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"

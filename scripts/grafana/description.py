"""Defines how a dashboard is described: a panel is a title, a unit and its queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["timeseries", "stat", "table", "state-timeline", "bargauge"]


@dataclass(frozen=True)
class Query:
    expression: str
    legend: str = ""
    line: bool = False
    """Drawn as a line of its own above what is stacked."""


@dataclass(frozen=True)
class Panel:
    title: str
    queries: tuple[Query, ...]
    unit: str = "bytes"
    kind: Kind = "timeseries"
    width: int = 12
    height: int = 8
    about: str = ""
    stacked: bool = False
    repeat: str = ""
    """A variable: one panel for each of its values."""
    hidden: tuple[str, ...] = ()
    """Columns of a table that are not shown."""
    named: tuple[tuple[str, str], ...] = ()
    """Columns of a table with other names; `Value #A` is that of the first query."""


@dataclass(frozen=True)
class Variable:
    name: str
    query: str
    """label_values(...), or values with commas between them."""
    label: str
    several: bool = True


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def stat(title: str, expression: str, unit: str, about: str = "") -> Panel:
    return Panel(title, (Query(expression),), unit, "stat", width=4, height=4, about=about)


def queries(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Yields the title of each panel with each of its expressions."""
    for row in dashboard.rows:
        for panel in row.panels:
            for query in panel.queries:
                yield panel.title, query.expression

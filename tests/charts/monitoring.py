"""The alert rules and dashboards of the chart, and the queries in them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts" / "cotenant" / "monitoring" / "rules.yaml"
sys.path.append(str(ROOT / "scripts"))

import dashboards  # noqa: E402
from grafana.description import queries  # noqa: E402

NAME = re.compile(r"\bcotenant_[a-z_]+")


class Asked(NamedTuple):
    """A query, and where it stands."""

    where: str
    expression: str

    def __str__(self) -> str:
        return self.where


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def all_queries() -> Iterator[Asked]:
    for rule in rules():
        yield Asked(rule["alert"], rule["expr"])
    yield from panel_queries()


def panel_queries() -> Iterator[Asked]:
    for dashboard in dashboards.ALL:
        for at, (title, expression) in enumerate(queries(dashboard)):
            yield Asked(f"{dashboard.name} / {title} {at}", expression)


def as_grafana_sends_it(expression: str, span: str = "5m") -> str:
    """With everything chosen, and a time range of this length."""
    values = {"$__rate_interval": span, "$__range": span, "$size": "1073741824"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z]+", ".*", expression)

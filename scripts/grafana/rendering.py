"""Renders the description of a dashboard as the JSON that Grafana reads."""

from __future__ import annotations

from typing import Any

from grafana.description import Dashboard, Panel, Query, Variable

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Columns of Grafana's grid."""
SCHEMA = 39
"""Grafana 10.4 and later read it; later ones migrate it."""


def render(dashboard: Dashboard) -> dict[str, Any]:
    """Returns the JSON of a dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in dashboard.rows:
        at = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": at, "collapsed": False}
        )
        top, left, tallest = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, tallest = top + tallest, 0, 0
            at = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            panels.append({"id": len(panels) + 1, "gridPos": at, **_panel(panel)})
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["cotenant", "gpu"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "tags": ["cotenant"],
                "title": "Cotenant",
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_SOURCE_VARIABLE, *map(_variable, dashboard.variables)]},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": [_target(at, query, panel) for at, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": [*_lines(panel), *_columns(panel)]},
        "options": _options(panel),
    }
    if panel.repeat:
        made |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2}
    if panel.kind == "table":
        hidden = dict.fromkeys(panel.hidden, True)
        made["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": dict(panel.named)}},
        ]
    return made


def _target(at: int, query: Query, panel: Panel) -> dict[str, Any]:
    at_once = panel.kind in {"table", "stat", "bargauge"}
    return {
        "refId": chr(ord("A") + at),
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "instant": at_once,
        "range": not at_once,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    made: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        made["min"] = 0
        made["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return made


def _lines(panel: Panel) -> list[dict[str, Any]]:
    """A line above what is stacked is found by the query that it comes from."""
    if not panel.stacked:
        return []
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": chr(ord("A") + at)},
            "properties": [
                {"id": "custom.stacking", "value": {"mode": "none", "group": "A"}},
                {"id": "custom.fillOpacity", "value": 0},
                {"id": "custom.lineWidth", "value": 2},
            ],
        }
        for at, query in enumerate(panel.queries)
        if query.line
    ]


def _columns(panel: Panel) -> list[dict[str, Any]]:
    """A column in bytes beside one in seconds has a unit of its own."""
    return [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": "bytes"}]}
        for _, name in panel.named
        if panel.unit != "bytes" and name == "asks for"
    ]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind in {"stat", "bargauge"}:
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "horizontal",
        }
    return {}


_SOURCE_VARIABLE = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "hide": 0,
    "refresh": 1,
}


def _variable(variable: Variable) -> dict[str, Any]:
    if not variable.query.startswith("label_values("):
        first = variable.query.split(",")[2].split(" : ")
        current = {"text": first[0].strip(), "value": first[1].strip(), "selected": True}
        return {
            "name": variable.name,
            "label": variable.label,
            "type": "custom",
            "query": variable.query,
            "current": current,
            "includeAll": False,
            "multi": False,
        }
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": "values"},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": variable.several,
        "allValue": None if variable.name == "gpu" else ".*",
        "current": {"text": "All", "value": "$__all", "selected": True},
    }

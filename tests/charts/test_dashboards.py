"""The dashboards: as they are described, of metrics that exist, and complete enough for Grafana."""

from __future__ import annotations

import json
import re

import pytest
from charts.monitoring import NAME, all_queries, dashboards, panel_queries

from charts import monitoring
from cotenant.observe.metrics import Metric

ENTRIES = {each.value.name: each.value for each in Metric}
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
FILES = sorted(dashboards.FOLDER.glob("*.json"))


def test_the_files_are_what_the_descriptions_make():
    made = dict(dashboards.written())
    assert set(made) == set(FILES)
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name}: `make deploy` writes it anew"


@pytest.mark.parametrize("asked", list(all_queries()), ids=str)
def test_every_metric_and_label_that_is_asked_for_is_in_the_table(asked):
    known = set()
    for name in NAME.findall(asked.expression):
        base = next((name.removesuffix(end) for end in OF_HISTOGRAMS if name.endswith(end)), name)
        assert base in ENTRIES, f"{name} is not in the table of metrics"
        assert base == name or ENTRIES[base].kind == "histogram"
        known.update(ENTRIES[base].labels)
    named = re.findall(r"(?:by|on|group_left) \(([^)]*)\)", asked.expression)
    labels = {each.strip() for part in named for each in part.split(",")}
    assert labels <= known | {"instance", "job", "le"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_is_complete(path):
    made = json.loads(path.read_text())
    assert made["uid"] == path.stem
    panels = [each for each in made["panels"] if each["type"] != "row"]
    assert len({each["id"] for each in made["panels"]}) == len(made["panels"])
    variables = {each["name"] for each in made["templating"]["list"]}
    for panel in panels:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            asked = set(re.findall(r"\$([a-z]+)", target["expr"]))
            assert asked <= variables, f"{panel['title']}: no variable {asked - variables}"
        if panel["type"] == "table":
            assert all(target["format"] == "table" and target["instant"] for target in panel["targets"])
    taken = set()
    for panel in made["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells


def test_the_questions_that_people_have_are_answered():
    """Of the fleet, a workload and scalers: what these dashboards are there for."""
    asked = " ".join(each.expression for each in panel_queries())
    for metric in (
        Metric.GPU_MEMORY,
        Metric.CONTAINER_MEMORY_LIMIT,
        Metric.CONTAINER_MEMORY_USED,
        Metric.CONTAINER_MEMORY_PEAK,
        Metric.CONTAINER_DENIED,
        Metric.CONTAINER_UTILIZATION,
        Metric.WAITING_SECONDS,
        Metric.GPU_MEMORY_FREE,
        Metric.SCALER_BACKLOG,
        Metric.SCALER_DESIRED,
        Metric.SCALER_STATE,
    ):
        assert metric.value.name in asked


def test_variables_of_grafana_are_replaced_before_prometheus_is_asked():
    assert not [each for each in all_queries() if "$" in monitoring.as_grafana_sends_it(each.expression)]

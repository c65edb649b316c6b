"""The page of metrics in docs/ is what the table says."""

from pathlib import Path

from cotenant.observe.metrics import Metric
from cotenant.observe.metrics_reference import reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_the_page_in_docs_is_what_the_table_says():
    assert PAGE.read_text() == reference(), "docs/metrics.md is out of date: run `make docs`"


def test_every_metric_of_the_table_is_on_the_page():
    assert all(f"| `{each.value.name}` | {each.value.kind} |" in reference() for each in Metric)

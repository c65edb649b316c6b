"""The table of metrics keeps to Prometheus' conventions, and what is built from it is what it says."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cotenant.observe.exposition import (
    Registry,
    counter,
    family,
    gauge,
    histogram,
    text_of,
    text_of_families,
)
from cotenant.observe.metrics import Metric

BUILD = {"counter": counter, "gauge": gauge, "histogram": histogram}


@pytest.mark.parametrize("metric", Metric, ids=lambda each: each.value.name)
def test_a_metric_follows_the_conventions(metric: Metric):
    entry = metric.value
    assert re.fullmatch(r"cotenant(_[a-z]+)+", entry.name)
    assert entry.name.endswith("_total") == (entry.kind == "counter")
    assert bool(entry.buckets) == (entry.kind == "histogram")
    assert list(entry.buckets) == sorted(set(entry.buckets))
    assert re.fullmatch(r"[A-Z1T].*\.", entry.help)
    assert "|" not in entry.help


def test_no_two_metrics_have_one_name():
    names = [each.value.name for each in Metric]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", Metric, ids=lambda each: each.value.name)
def test_what_is_registered_is_what_the_table_says(metric: Metric):
    entry, registry = metric.value, Registry()
    built = BUILD[entry.kind](metric, registry)
    labelled = built.labels(*entry.labels) if entry.labels else built
    getattr(labelled, {"counter": "inc", "gauge": "inc", "histogram": "observe"}[entry.kind])(1)
    (shown,) = [
        each
        for each in text_string_to_metric_families(text_of(registry).decode())
        if not each.name.endswith("_created")
    ]
    assert (shown.type, shown.documentation) == (entry.kind, entry.help)
    assert shown.name == entry.name.removesuffix("_total")
    bounds = [float(each.labels["le"]) for each in shown.samples if "le" in each.labels]
    assert bounds == [*entry.buckets, float("inf")] if entry.buckets else not bounds


def test_a_family_shows_its_samples_and_nothing_without_them():
    info = family(Metric.AGENT_INFO, (("n1", "1.0"), 1))
    denied = family(Metric.CONTAINER_DENIED, (("web", "a", "main"), 4), (("web", "b", "main"), 2))
    text = text_of_families([info, denied, family(Metric.GPU_HEALTHY)]).decode().splitlines()
    assert [line for line in text if not line.startswith("#")] == [
        'cotenant_agent_info{node="n1",version="1.0"} 1.0',
        'cotenant_container_denied_allocations_total{container="main",namespace="web",pod="a"} 4.0',
        'cotenant_container_denied_allocations_total{container="main",namespace="web",pod="b"} 2.0',
    ]


def test_a_metric_cannot_be_built_as_another_type_or_with_other_labels():
    with pytest.raises(TypeError, match="cotenant_leader is a gauge in the table"):
        counter(Metric.LEADER, Registry())
    with pytest.raises(TypeError, match="cotenant_webhook_seconds is a histogram"):
        family(Metric.WEBHOOK_SECONDS)
    with pytest.raises(TypeError, match="cotenant_agent_info has the labels"):
        family(Metric.AGENT_INFO, (("n1",), 1))

"""The table of metrics keeps to Prometheus' conventions, and what is built from it is what it says."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cotenant.observe.exposition import Registry, computed, counter, gauge, histogram, text_of
from cotenant.observe.metrics import Metric
from cotenant.observe.text_format import family, text_of_families

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


@pytest.mark.parametrize(
    "hostile", ['a"b', "a\\b", "a\nb", "\\n", "{}", "100%s", "ü中", "", "}\n# EOF", "x" * 10_000]
)
def test_label_values_are_read_as_they_were_given(hostile: str):
    text = text_of_families([family(Metric.AGENT_INFO, ((hostile, hostile), 1), (("n", "v"), 0))]).decode()
    (read,) = text_string_to_metric_families(text)
    assert [each.labels for each in read.samples] == [
        {"node": hostile, "version": hostile},
        {"node": "n", "version": "v"},
    ]


def test_what_cannot_be_encoded_is_replaced():
    text = text_of_families([family(Metric.AGENT_INFO, (("\udcff", "v"), 1))])
    assert b'node="?"' in text


@pytest.mark.parametrize("value", [0, 1.5, -1, 2**60, 1e300, float("inf"), float("-inf")])
def test_values_are_read_as_they_were_given(value: float):
    (read,) = text_string_to_metric_families(text_of_families([family(Metric.LEADER, ((), value))]).decode())
    assert read.samples[0].value == value
    assert text_of_families([family(Metric.LEADER, ((), float("nan")))]).endswith(b" NaN\n")


def test_series_that_are_computed_come_and_go():
    registry, there = Registry(), [(("web", "a"), 4.0)]
    computed(Metric.WAITING_SECONDS, registry, lambda: there)
    shown = 'cotenant_scheduler_waiting_pod_seconds{namespace="web",pod="a"} 4.0\n'
    assert text_of(registry).decode().endswith(shown)
    there.clear()
    assert "pod=" not in text_of(registry).decode()
    with pytest.raises(TypeError, match="is a counter"):
        computed(Metric.EVICTIONS, registry, list)


def test_a_metric_cannot_be_built_as_another_type_or_with_other_labels():
    with pytest.raises(TypeError, match="cotenant_leader is a gauge in the table"):
        counter(Metric.LEADER, Registry())
    with pytest.raises(TypeError, match="cotenant_webhook_seconds is a histogram"):
        family(Metric.WEBHOOK_SECONDS)
    with pytest.raises(TypeError, match="cotenant_agent_info has the labels"):
        family(Metric.AGENT_INFO, (("n1",), 1))

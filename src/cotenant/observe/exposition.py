"""Builds metrics from the table and writes them in Prometheus' text format.

Nothing else in Cotenant imports prometheus_client. A process that counts keeps a `Registry` and gets its
counters, gauges and histograms here. One that reads its values when it is scraped makes families instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry as Registry
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from cotenant.observe.metrics import Entry, Kind, Metric

__all__ = ["Counter", "Family", "Gauge", "Histogram", "Registry"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The version that every scraper reads. Ours has no names that need a later one."""


def counter(metric: Metric | Entry, registry: Registry) -> Counter:
    entry = _entry(metric, "counter")
    return Counter(entry.name, entry.help, entry.labels, registry=registry)


def gauge(metric: Metric | Entry, registry: Registry) -> Gauge:
    entry = _entry(metric, "gauge")
    return Gauge(entry.name, entry.help, entry.labels, registry=registry)


def histogram(metric: Metric | Entry, registry: Registry) -> Histogram:
    entry = _entry(metric, "histogram")
    return Histogram(entry.name, entry.help, entry.labels, registry=registry, buckets=entry.buckets)


def family(metric: Metric, *samples: tuple[Sequence[str], float]) -> Family:
    """A counter or gauge with these samples: the values of its labels, in the table's order, and its own."""
    entry = _entry(metric, "counter", "gauge")
    make = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    made = make(entry.name, entry.help, labels=entry.labels)
    for labels, value in samples:
        if len(labels) != len(entry.labels):
            raise TypeError(f"{entry.name} has the labels {entry.labels}, not {len(labels)} of them")
        made.add_metric(labels, float(value))
    return made


def text_of(registry: Registry) -> bytes:
    """All metrics of a registry in Prometheus' text format."""
    return generate_latest(registry)


def text_of_families(families: Iterable[Family]) -> bytes:
    registry = Registry(auto_describe=False)
    registry.register(_Read(families))
    return generate_latest(registry)


class _Read(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _entry(metric: Metric | Entry, *kinds: Kind) -> Entry:
    """Returns the table's line. A part of somebody else's brings a line of its own."""
    entry = metric.value if isinstance(metric, Metric) else metric
    if entry.kind not in kinds:
        raise TypeError(f"{entry.name} is a {entry.kind} in the table of metrics")
    return entry

"""Builds metrics of the table for a process that counts: it keeps a `Registry`, and gets its counters, gauges
and histograms here.

Nothing else in Cotenant imports prometheus_client. What is read only when it is scraped is written by
`text_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry as Registry
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cotenant.observe.metrics import Entry, Kind, Metric
from cotenant.observe.text_format import Sample, entry_of

__all__ = ["Counter", "Gauge", "Histogram", "Registry"]


def counter(metric: Metric | Entry, registry: Registry) -> Counter:
    entry = _entry(metric, "counter")
    return Counter(entry.name, entry.help, entry.labels, registry=registry)


def gauge(metric: Metric | Entry, registry: Registry) -> Gauge:
    entry = _entry(metric, "gauge")
    return Gauge(entry.name, entry.help, entry.labels, registry=registry)


def histogram(metric: Metric | Entry, registry: Registry) -> Histogram:
    entry = _entry(metric, "histogram")
    return Histogram(entry.name, entry.help, entry.labels, registry=registry, buckets=entry.buckets)


def computed(metric: Metric, registry: Registry, samples: Callable[[], Iterable[Sample]]) -> None:
    """Registers a gauge whose series come and go: `samples` is called at each scrape."""
    entry = _entry(metric, "gauge")
    registry.register(_Computed(entry, samples))


def text_of(registry: Registry) -> bytes:
    """All metrics of a registry in Prometheus' text format."""
    return generate_latest(registry)


class _Computed(Collector):
    def __init__(self, entry: Entry, samples: Callable[[], Iterable[Sample]]) -> None:
        self._entry, self._samples = entry, samples

    def describe(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(self._entry.name, self._entry.help, labels=self._entry.labels)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        (made,) = self.describe()
        for labels, value in self._samples():
            made.add_metric(labels, float(value))
        yield made


def _entry(metric: Metric | Entry, *kinds: Kind) -> Entry:
    """Returns the table's line. A part of somebody else's brings a line of its own."""
    return entry_of(metric.value if isinstance(metric, Metric) else metric, *kinds)

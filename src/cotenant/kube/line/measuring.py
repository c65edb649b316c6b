"""Exports who waits in line, and for how long, as metrics of the server that leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.membership import waited
from cotenant.kube.line.place import Place
from cotenant.observe.exposition import Registry, computed, gauge
from cotenant.observe.metrics import Metric
from cotenant.observe.text_format import Sample
from cotenant.observe.view_metrics import MOST_WAITING


@dataclass(frozen=True)
class LineMetrics:
    keeper: LineKeeper
    leading: Callable[[], bool]
    """A server that does not lead keeps a line that nobody serves: it exports none of it."""

    def register(self, registry: Registry) -> None:
        gauge(Metric.LONGEST_WAIT, registry).set_function(self.longest)
        computed(Metric.WAITING_SECONDS, registry, lambda: self._each(self._seconds))
        computed(Metric.WAITING_MEMORY, registry, lambda: self._each(_memory))

    def longest(self) -> float:
        if not self.leading():
            return 0.0
        return max((self._seconds(place) for place in self.keeper.places()), default=0.0)

    def _each(self, value_of: Callable[[Place], float]) -> Iterator[Sample]:
        """Yields the first in line. Two pods of one name are never in it: a name is unique in its namespace,
        and a pod leaves the line with its deletion.
        """
        if not self.leading():
            return
        seen: set[tuple[str, str]] = set()
        for place in islice(self.keeper.places(), MOST_WAITING):
            meta = place.pod.metadata
            labels = (meta.namespace, meta.name)
            if labels not in seen:
                seen.add(labels)
                yield labels, value_of(place)

    def _seconds(self, place: Place) -> float:
        return waited(place.pod, self.keeper.wall())


def _memory(place: Place) -> float:
    asked = (demand.memory for demand in place.waiting.demands)
    return sum(memory.bytes or 0 for memory in asked if memory is not None)

"""Reads series of containers from Prometheus into histories.

Each question asks for the highest of each bucket (`max_over_time`), so that nothing between two answers is
missed, whatever the scrape interval is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cotenant.advice.gathered import Progress
from cotenant.core.errors import BadInput
from cotenant.core.rightsizing.collecting import STEP, Collector
from cotenant.observe.prometheus import Labels, Line, Transport, instant, ranged

MOST_SERIES = 50_000
MOST_BYTES = float(1 << 50)
"""More than any GPU has: such a figure is a mistake of whoever reported it. Agents report no more
than this of what a container claims itself.
"""
_LABEL_VALUE = re.compile(r"[-a-z0-9]{1,63}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What to ask for: a namespace or all, and a stretch of time in Unix seconds."""

    first: float
    end: float
    namespace: str | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.namespace is not None and not _LABEL_VALUE.fullmatch(self.namespace):
            raise BadInput(f"namespace: {self.namespace!a} is not a name of a namespace")

    def tell(self, done: float, what: str) -> None:
        if self.progress is not None:
            self.progress(done, what)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Whose memory of which GPU a series is about."""

    namespace: str
    pod: str
    container: str
    gpu: str
    cluster: str = ""
    """Of a store with series of several clusters: a pod of a StatefulSet has the same name in each."""


def instance_of(place: Place, *, several: bool) -> str:
    """Names the pod, with its cluster where the series are of several."""
    return f"{place.cluster}/{place.pod}" if several and place.cluster else place.pod


def are_several(places: Iterable[Place]) -> bool:
    """Whether these are of more than one cluster."""
    return len({each.cluster for each in places if each.pod}) > 1


def place_of(labels: Labels, gpu: str, *, exported: bool) -> Place | None:
    """Finds namespace, pod and container in a series' labels; None if it is about no pod.

    Prometheus renames labels that its target has too, unless it is told to honour them: the pod is then
    `exported_pod`, and `pod` is the exporter. Exporters before 2020 wrote `pod_name`.
    """
    names = (
        ("exported_namespace", "exported_pod", "exported_container"),
        ("pod_namespace", "pod_name", "container_name"),
        ("namespace", "pod", "container"),
    )
    for namespace, pod, container in names[:1] if exported else names[1:]:
        if labels.get(pod):
            of_pod = labels.get(namespace, ""), labels[pod], labels.get(container, "")
            return Place(*of_pod, gpu, labels.get("cluster", ""))
    return None


def is_exported(found: list[Labels]) -> bool:
    """Whether the pods of these series are in labels that Prometheus renamed."""
    return any(each.get("exported_pod") for each in found)


async def count(transport: Transport, selector: str, asked: Asked) -> int:
    """Counts the series of a metric that are there now or were a day before the end."""
    found = await instant(transport, f"count(last_over_time({selector}[1d]))", asked.end)
    return int(found[0][1]) if found else 0


async def collect(
    transport: Transport,
    metric: str,
    matches: str,
    asked: Asked,
    key: Callable[[Labels], Place | None],
    seen: Callable[[Line, Place], None] | None = None,
    unit: float = 1.0,
) -> tuple[Collector[Place], float]:
    """Reads a metric over the whole stretch. `key` tells whose a series is, None leaves it out; `seen` is
    told of each piece that is kept.
    """
    collector: Collector[Place] = Collector(STEP)
    selector = f"{metric}{matches}"
    query = f"max_over_time({selector}[{STEP:.0f}s])"
    many = max(1, await count(transport, selector, asked))
    if many > MOST_SERIES:
        raise BadInput(f"namespace: {many} series of {metric}: name one namespace with -n")

    def told(done: float) -> None:
        asked.tell(done, f"{metric} from {transport.name}")

    told(0.0)
    began = asked.end
    places: dict[tuple[tuple[str, str], ...], Place | None] = {}
    async for line in ranged(transport, query, asked.first + STEP, asked.end, STEP, many, told):
        labels = tuple(sorted(line.labels.items()))
        if labels not in places:
            places[labels] = key(line.labels)
        place = places[labels]
        if line.times:
            began = min(began, line.times[0])
        if place is None:
            continue
        # A point is the highest of the bucket that ends there.
        times = [at - STEP / 2 for at in line.times]
        values = line.values if unit == 1 else [value * unit for value in line.values]
        if values and not 0 <= min(values) <= max(values) < MOST_BYTES:
            kept = [at for at, value in enumerate(values) if 0 <= value < MOST_BYTES]
            times, values = [times[at] for at in kept], [values[at] for at in kept]
        collector.add_line(place, times, values)
        if seen is not None:
            seen(line, place)
    return collector, began - STEP

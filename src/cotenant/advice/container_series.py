"""Reads what Cotenant's own agents report: the peak of each container since its start, its limit, its
workload.

A peak since the start misses nothing between two scrapes, and includes a start that was before the first of
them. Workload and version come from `cotenant_container_info`, or else from the pod's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cotenant.advice.gathered import Gathered, from_prometheus
from cotenant.advice.pod_names import PodWorkload, workload_of
from cotenant.advice.prometheus_reading import (
    MOST_BYTES,
    Asked,
    Place,
    are_several,
    collect,
    count,
    instance_of,
    is_exported,
    place_of,
)
from cotenant.core.rightsizing.groups import Group, Owner, pooled
from cotenant.core.rightsizing.history import Track
from cotenant.observe.prometheus import Labels, Transport, instant

PEAK = "cotenant_container_memory_peak_bytes"
USED = "cotenant_container_memory_used_bytes"
LIMIT = "cotenant_container_memory_limit_bytes"
INFO = "cotenant_container_info"
DENIED = "cotenant_container_denied_allocations_total"
_DAY = 86400.0

Pods = Mapping[tuple[str, str], PodWorkload]
"""Workloads by namespace and pod, where something better than the pod's name is known."""


@dataclass(frozen=True, slots=True)
class _Labels:
    """Reads labels as Prometheus stores them here."""

    exported: bool

    def place(self, labels: Labels) -> Place | None:
        return place_of(labels, labels.get("uuid", ""), exported=self.exported)


async def present(transport: Transport, asked: Asked) -> bool:
    """Whether there are series of ours."""
    return await count(transport, PEAK, asked) > 0 or await count(transport, USED, asked) > 0


async def read_containers(transport: Transport, asked: Asked, pods: Pods | None = None) -> Gathered:
    """Reads histories of all containers; `pods` has the workloads of pods that the cluster knows."""
    metric = PEAK if await count(transport, PEAK, asked) else USED
    sample = [labels for labels, _ in await instant(transport, f"last_over_time({metric}[1d])", asked.end)]
    labels = _Labels(is_exported(sample))
    label = "exported_namespace" if labels.exported else "namespace"
    matches = "" if asked.namespace is None else f'{{{label}="{asked.namespace}"}}'
    collector, began = await collect(transport, metric, matches, asked, labels.place)
    known = {**await _infos(transport, asked, labels), **(pods or {})}
    tracks, left_out = collector.tracks()
    several = are_several(tracks)
    limits = await _latest(
        transport, f"last_over_time({LIMIT}{matches}[1h])", asked.end, labels, several=several
    )
    denied = await _latest(
        transport, f"max_over_time({DENIED}{matches}[1d])", asked.end, labels, several=several
    )
    by_owner: dict[Owner, list[Track]] = {}
    for place, track in tracks.items():
        own = replace(
            track,
            instance=instance_of(place, several=several),
            gpu=place.gpu,
            since_start=metric == PEAK,
            samples=len(track.buckets),
        )
        by_owner.setdefault(owner_of(place, known), []).append(own)
    described = [_described(each, limits, denied) for each in pooled(by_owner)]
    notes = (
        [] if metric == PEAK else [f"there is no {PEAK}: what was in use between two scrapes is not known"]
    )
    if left_out:
        notes.append(f"{left_out} samples have times far from all others and are left out")
    found = from_prometheus(transport.name, collector.step, described, tracks.values())
    return replace(found, began=began, notes=tuple(notes))


def owner_of(place: Place, known: Pods) -> Owner:
    workload = known.get((place.namespace, place.pod)) or workload_of(place.pod)
    return Owner(workload.of(place.namespace), workload.version, place.container)


async def _infos(transport: Transport, asked: Asked, read: _Labels) -> dict[tuple[str, str], PodWorkload]:
    """Asks day by day, since pods of the past have gone from the present; nothing if there is no such
    metric.
    """
    found: dict[tuple[str, str], PodWorkload] = {}
    days = max(1, round((asked.end - asked.first) / _DAY))
    for day in range(days):
        end = asked.end - day * _DAY
        query = f"last_over_time({INFO}[1d])"
        for labels, _ in await instant(transport, query, end):
            place = read.place(labels)
            name = labels.get("workload", "")
            if place is not None and name:
                kind = labels.get("workload_kind", "").lower() or "pods"
                key = place.namespace, place.pod
                found.setdefault(key, PodWorkload(kind, name, labels.get("version", "")))
        if not found:
            break
        asked.tell((day + 1) / days, f"{INFO} from {transport.name}")
    return found


async def _latest(
    transport: Transport, query: str, at: float, read: _Labels, *, several: bool
) -> dict[tuple[str, str, str], int]:
    """Returns what a query gives by namespace, instance and container: the highest of its GPUs."""
    found: dict[tuple[str, str, str], int] = {}
    for labels, value in await instant(transport, query, at):
        place = read.place(labels)
        if place is not None and 0 < value <= MOST_BYTES:
            key = place.namespace, instance_of(place, several=several), place.container
            found[key] = max(round(value), found.get(key, 0))
    return found


def _described(
    group: Group, limits: Mapping[tuple[str, str, str], int], denied: Mapping[tuple[str, str, str], int]
) -> Group:
    """Adds what its pods ask for now, and how many of their allocations failed."""
    namespace = group.owner.workload.partition("/")[0]
    keys = [(namespace, pod, group.owner.container) for pod in group.instances]
    now = max((limits[key] for key in keys if key in limits), default=None)
    return replace(group, now=now, denied=sum(denied.get(key, 0) for key in keys))

"""Makes metrics of a view: the GPUs of a node or a machine, and the containers on them.

Sums never count anything twice: on each GPU, what containers use and what is outside add up to what is in
use. What is exported is bounded, whatever names and however many containers there are, and what is cut is
counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cotenant.observe.metrics import Metric
from cotenant.observe.text_format import Family, family
from cotenant.observe.view import GpuView, GrantView, ShareView, View, WorkloadView

MOST_CONTAINERS = 2000
"""Containers that are exported; those with a grant come first. A kubelet has 110 pods unless set higher."""
MOST_WAITING = 50
"""Of the line, those that are exported one by one."""
LONGEST_LABEL = 253
"""Characters of a label's value. Kubernetes allows no longer name; of an owner's name it checks nothing."""
_UNKNOWN = WorkloadView("")

Labels = tuple[str, ...]


def of_gpus(view: View) -> Iterator[Family]:
    """Metrics of the GPUs."""
    held = _held(view)
    values: dict[Metric, Callable[[GpuView], float | None]] = {
        Metric.GPU_MEMORY: lambda each: each.gpu.memory,
        Metric.GPU_MEMORY_GRANTED: lambda each: each.granted,
        Metric.GPU_MEMORY_USED: lambda each: each.used,
        Metric.GPU_MEMORY_OUTSIDE: lambda each: (
            None if each.used is None else max(0, each.used - held.get(each.gpu.uuid, 0))
        ),
        Metric.GPU_MEMORY_FREE: lambda each: 0 if each.drained else each.room.free,
        Metric.GPU_UTILIZATION: lambda each: None if each.utilization is None else each.utilization / 100,
        Metric.GPU_HEALTHY: lambda each: each.problem is None,
    }
    for metric, value_of in values.items():
        found = ((each, value_of(each)) for each in view.gpus)
        yield family(
            metric,
            *(
                ((each.node, each.gpu.uuid, str(each.gpu.index), each.gpu.model), value)
                for each, value in found
                if value is not None
            ),
        )


def of_containers(view: View, unix: float) -> Iterator[Family]:
    """Metrics of the containers. `unix`: when the view was gathered, in seconds of the Unix epoch."""
    names = _Names()
    others = _by_name(view.others, names, {})
    granted = _by_name(view.grants, names, others)
    there = [*granted.items(), *((labels, each) for labels, each in others.items() if labels not in granted)]
    shown = there[:MOST_CONTAINERS]
    limited = [(labels, grant) for labels, grant in shown if labels in granted]
    yield from _of_shares([((*labels, each.uuid), each) for labels, grant in shown for each in grant.shares])
    yield from _of_limited(limited, unix)
    yield family(
        Metric.CONTAINER_ENFORCER,
        *(((*labels, *_enforcement(grant)), 1) for labels, grant in limited),
        *(((*labels, "none", "none", ""), 1) for labels, _ in shown[len(limited) :]),
    )
    yield family(
        Metric.CONTAINER_INFO,
        *(((*labels, *names.of_workload(view.workloads.get(grant.id))), 1) for labels, grant in shown),
    )
    too_many = max(0, len(there) - MOST_CONTAINERS)
    yield family(Metric.METRICS_CUT, (("containers",), too_many), (("labels",), names.cut))


def of_line(view: View) -> Iterator[Family]:
    """Metrics of the line, where the view has it: on one machine."""
    waits = [each.waited_seconds for each in view.line]
    yield family(Metric.PENDING_PODS, ((), len(waits)))
    yield family(Metric.LONGEST_WAIT, ((), round(max(waits, default=0.0), 1)))
    named = {(each.namespace, each.name): each.waited_seconds for each in view.line[:MOST_WAITING]}
    yield family(Metric.WAITING_SECONDS, *((labels, round(value, 1)) for labels, value in named.items()))


def _of_shares(shares: Sequence[tuple[Labels, ShareView]]) -> Iterator[Family]:
    """Metrics of containers by GPU."""
    yield family(
        Metric.CONTAINER_MEMORY_LIMIT, *((labels, each.memory) for labels, each in shares if each.memory)
    )
    yield family(Metric.CONTAINER_MEMORY_USED, *((labels, each.used) for labels, each in shares))
    yield family(
        Metric.CONTAINER_MEMORY_PEAK, *((labels, max(each.peak, each.used)) for labels, each in shares)
    )
    yield family(
        Metric.CONTAINER_UTILIZATION,
        *((labels, each.utilization / 100) for labels, each in shares if each.utilization is not None),
    )


def _of_limited(grants: Sequence[tuple[Labels, GrantView]], unix: float) -> Iterator[Family]:
    """Metrics of containers with a grant."""
    yield family(Metric.CONTAINER_DENIED, *((labels, each.denied) for labels, each in grants))
    yield family(Metric.CONTAINER_OVER_LIMIT, *((labels, each.over) for labels, each in grants))
    yield family(
        Metric.CONTAINER_MEMORY_OVER,
        *((labels, max(_beyond(each.shares), each.over_bytes)) for labels, each in grants),
    )
    yield family(Metric.CONTAINER_UNLIMITED, *((labels, len(each.unlimited)) for labels, each in grants))
    yield family(
        Metric.CONTAINER_LAST_ACTIVITY,
        *(
            (labels, round(unix - each.idle_seconds, 1))
            for labels, each in grants
            if each.idle_seconds is not None
        ),
    )


def _beyond(shares: Sequence[ShareView]) -> int:
    return sum([max(0, share.used - share.memory) for share in shares])


def _enforcement(grant: GrantView) -> tuple[str, str, str]:
    return grant.enforcer_asked or "unknown", grant.enforcer or "unknown", grant.mode


def _held(view: View) -> dict[str, int]:
    """Adds up what containers use of each GPU."""
    held: dict[str, int] = {}
    for grant in (*view.grants, *view.others):
        for share in grant.shares:
            held[share.uuid] = held.get(share.uuid, 0) + share.used
    return held


def _by_name(
    grants: Iterable[GrantView], names: _Names, others: Mapping[Labels, GrantView]
) -> dict[Labels, GrantView]:
    """A pod that was made anew under its name may be there twice, while the old one's last processes end.
    Memory is added up, so that no sum misses any of it. All else is of the one that comes later in the view.
    """
    found: dict[Labels, GrantView] = {}
    for grant in grants:
        labels = (names.bounded(grant.namespace), names.bounded(grant.name), names.bounded(grant.container))
        before = found.get(labels) or others.get(labels)
        shares = grant.shares if before is None else (*before.shares, *grant.shares)
        found[labels] = grant if len(shares) < 2 else replace(grant, shares=_added_up(shares))
    return found


def _added_up(shares: Sequence[ShareView]) -> tuple[ShareView, ...]:
    found: dict[str, ShareView] = {}
    for share in shares:
        before = found.get(share.uuid)
        found[share.uuid] = share if before is None else _both(before, share)
    return tuple(found.values())


def _both(one: ShareView, other: ShareView) -> ShareView:
    return replace(
        other,
        memory=one.memory + other.memory,
        used=one.used + other.used,
        peak=max(one.peak, other.peak),
        utilization=_sum(one.utilization, other.utilization),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else min(100, (one or 0) + (other or 0))


class _Names:
    """Bounds what others wrote, and counts what it has shortened."""

    def __init__(self) -> None:
        self.cut = 0

    def bounded(self, text: str) -> str:
        """Two that differ still do: series with the same labels would be refused."""
        if len(text) <= LONGEST_LABEL:
            return text
        self.cut += 1
        mark = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
        return f"{text[: LONGEST_LABEL - 13]}~{mark}"

    def of_workload(self, workload: WorkloadView | None) -> Labels:
        known = workload or _UNKNOWN
        return self.bounded(known.name), self.bounded(known.kind), self.bounded(known.version)

"""Exports the metrics of a node: its GPUs, the containers on them, and the agent itself.

All values are read when Prometheus scrapes; nothing is counted twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import Limits, Usage
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.grants import granted_on
from cotenant.kube.api.objects import Pod
from cotenant.observe.exposition import Family, family, text_of_families
from cotenant.observe.metrics import Metric

_SHORTEST_ID = 12
"""Characters of a container ID: a shorter one could be part of another container's cgroup by chance."""


class ContainerSlot(NamedTuple):
    """A slot, the container that owns it, and what its files say."""

    uid: str
    """The pod's UID."""
    namespace: str
    pod: str
    container: str
    limits: Limits
    usage: Usage


class AgentHealth(NamedTuple):
    """The state of the agent itself."""

    registered: bool
    """With the kubelet, as a device plugin."""
    pod_resources: bool
    """Whether the kubelet's pod-resources API answered the last request."""
    api: bool
    """Whether the API server answered the last request."""
    published: int
    """How often the node's status was written."""
    version: str


class Figures(NamedTuple):
    """All values at one moment."""

    node: str
    sight: Sight | None
    grants: Mapping[str, PodGrant]
    slots: Sequence[ContainerSlot]
    agent: AgentHealth
    now: float
    """By the clock of `sight`."""
    unix: float
    monotonic_ns: int
    """By the clock of the slots' usage, at the same moment."""
    containers: Mapping[tuple[str, str], str] = {}
    """Container IDs by pod UID and container name."""


def expose(figures: Figures) -> bytes:
    """Writes them in Prometheus' text format."""
    families = (*_of_gpus(figures), *_of_containers(figures), *_of_agent(figures))
    return text_of_families(families)


def container_ids(pods: Iterable[Pod]) -> dict[tuple[str, str], str]:
    """Reads the container IDs from the pods' status, by pod UID and container name."""
    return {
        (pod.metadata.uid, status.name): status.container_id.rpartition("/")[2]
        for pod in pods
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }


def _of_gpus(figures: Figures) -> Iterator[Family]:
    sight = figures.sight
    if sight is None:
        return
    values: dict[Metric, Callable[[CardReading], float | None]] = {
        Metric.GPU_MEMORY: lambda card: card.gpu.memory,
        Metric.GPU_MEMORY_GRANTED: lambda card: sum(granted_on(card.gpu.uuid, figures.grants).values()),
        Metric.GPU_MEMORY_USED: lambda card: card.used,
        Metric.GPU_MEMORY_OUTSIDE: lambda card: sight.outside.get(card.gpu.uuid, 0),
        Metric.GPU_UTILIZATION: lambda card: None if card.utilization is None else card.utilization / 100,
        Metric.GPU_HEALTHY: lambda card: card.problem is None,
    }
    for metric, value_of in values.items():
        found = ((card.gpu, value_of(card)) for card in sight.cards)
        yield family(
            metric,
            *(
                ((figures.node, gpu.uuid, str(gpu.index), gpu.model), value)
                for gpu, value in found
                if value is not None
            ),
        )


def _of_containers(figures: Figures) -> Iterator[Family]:
    found: dict[Metric, list[tuple[tuple[str, ...], float]]] = {
        Metric.CONTAINER_MEMORY_LIMIT: [],
        Metric.CONTAINER_MEMORY_USED: [],
        Metric.CONTAINER_MEMORY_PEAK: [],
        Metric.CONTAINER_UTILIZATION: [],
        Metric.CONTAINER_DENIED: [],
        Metric.CONTAINER_OVER_LIMIT: [],
        Metric.CONTAINER_LAST_ACTIVITY: [],
    }
    for slot in figures.slots:
        labels = (slot.namespace, slot.pod, slot.container)
        for at, card in enumerate(slot.limits.cards):
            on_gpu = (*labels, card.uuid)
            found[Metric.CONTAINER_MEMORY_LIMIT].append((on_gpu, card.bytes))
            found[Metric.CONTAINER_MEMORY_USED].append((on_gpu, slot.usage.used(at)))
            found[Metric.CONTAINER_MEMORY_PEAK].append((on_gpu, slot.usage.peak[at]))
            busy = _busy(figures, slot, card.uuid)
            if busy is not None:
                found[Metric.CONTAINER_UTILIZATION].append((on_gpu, busy))
        found[Metric.CONTAINER_DENIED].append((labels, slot.usage.denied))
        found[Metric.CONTAINER_OVER_LIMIT].append((labels, slot.usage.over))
        if slot.usage.last_active:
            ago = max(0.0, (figures.monotonic_ns - slot.usage.last_active) / 1e9)
            found[Metric.CONTAINER_LAST_ACTIVITY].append((labels, round(figures.unix - ago, 1)))
    for metric, samples in found.items():
        yield family(metric, *samples)


def _busy(figures: Figures, slot: ContainerSlot, uuid: str) -> float | None:
    """Part of the GPU's time; None where the driver does not report it, or the container ID is not known."""
    by_owner: Mapping[Owner, int] | None = figures.sight.busy.get(uuid) if figures.sight else None
    id = figures.containers.get((slot.uid, slot.container), "")
    if by_owner is None or len(id) < _SHORTEST_ID:
        return None
    percent = sum(
        percent for owner, percent in by_owner.items() if owner.uid == slot.uid and id in owner.cgroup
    )
    return min(100, percent) / 100


def _of_agent(figures: Figures) -> Iterator[Family]:
    agent = figures.agent
    yield family(Metric.AGENT_INFO, ((figures.node, agent.version), 1))
    yield family(Metric.AGENT_REGISTERED, ((), agent.registered))
    yield family(Metric.AGENT_POD_RESOURCES_REACHABLE, ((), agent.pod_resources))
    yield family(Metric.AGENT_API_REACHABLE, ((), agent.api))
    if figures.sight is not None:
        yield family(Metric.AGENT_SURVEY_AGE, ((), max(0.0, figures.now - figures.sight.at)))
    yield family(Metric.AGENT_PUBLISHES, ((), agent.published))


def moment() -> tuple[float, float, int]:
    """`now`, `unix` and `monotonic_ns` of values that are read now."""
    ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return ns / 1e9, time.time(), ns

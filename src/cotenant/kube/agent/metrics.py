"""Exports the metrics of a node: its GPUs, the containers on them, and the agent itself.

All values are read when Prometheus scrapes; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cotenant.observe.exposition import Family, family, text_of_families
from cotenant.observe.metrics import Metric
from cotenant.observe.view import GpuView, View


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

    view: View
    """Of this node alone."""
    agent: AgentHealth
    unix: float
    """When the view was gathered, in seconds of the Unix epoch."""
    survey_age: float | None
    """Seconds since the GPUs were read; None before the first survey."""


def expose(figures: Figures) -> bytes:
    """Writes them in Prometheus' text format."""
    families = (*_of_gpus(figures), *_of_containers(figures), *_of_agent(figures))
    return text_of_families(families)


def _of_gpus(figures: Figures) -> Iterator[Family]:
    if figures.survey_age is None:
        return
    values: dict[Metric, Callable[[GpuView], float | None]] = {
        Metric.GPU_MEMORY: lambda view: view.gpu.memory,
        Metric.GPU_MEMORY_GRANTED: lambda view: view.granted,
        Metric.GPU_MEMORY_USED: lambda view: view.used,
        Metric.GPU_MEMORY_OUTSIDE: lambda view: view.outside,
        Metric.GPU_UTILIZATION: lambda view: None if view.utilization is None else view.utilization / 100,
        Metric.GPU_HEALTHY: lambda view: view.problem is None,
    }
    for metric, value_of in values.items():
        found = ((view, value_of(view)) for view in figures.view.gpus)
        yield family(
            metric,
            *(
                ((view.node, view.gpu.uuid, str(view.gpu.index), view.gpu.model), value)
                for view, value in found
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
        Metric.CONTAINER_UNLIMITED: [],
        Metric.CONTAINER_LAST_ACTIVITY: [],
    }
    for grant in figures.view.grants:
        labels = (grant.namespace, grant.name, grant.container)
        for share in grant.shares:
            on_gpu = (*labels, share.uuid)
            found[Metric.CONTAINER_MEMORY_LIMIT].append((on_gpu, share.memory))
            found[Metric.CONTAINER_MEMORY_USED].append((on_gpu, share.used))
            found[Metric.CONTAINER_MEMORY_PEAK].append((on_gpu, share.peak))
            if share.utilization is not None:
                found[Metric.CONTAINER_UTILIZATION].append((on_gpu, share.utilization / 100))
        found[Metric.CONTAINER_DENIED].append((labels, grant.denied))
        found[Metric.CONTAINER_OVER_LIMIT].append((labels, grant.over))
        found[Metric.CONTAINER_UNLIMITED].append((labels, len(grant.unlimited)))
        if grant.idle_seconds is not None:
            active = round(figures.unix - grant.idle_seconds, 1)
            found[Metric.CONTAINER_LAST_ACTIVITY].append((labels, active))
    for metric, samples in found.items():
        yield family(metric, *samples)


def _of_agent(figures: Figures) -> Iterator[Family]:
    agent = figures.agent
    yield family(Metric.AGENT_INFO, *(((node.name, agent.version), 1) for node in figures.view.nodes))
    yield family(Metric.AGENT_REGISTERED, ((), agent.registered))
    yield family(Metric.AGENT_POD_RESOURCES_REACHABLE, ((), agent.pod_resources))
    yield family(Metric.AGENT_API_REACHABLE, ((), agent.api))
    if figures.survey_age is not None:
        yield family(Metric.AGENT_SURVEY_AGE, ((), figures.survey_age))
    yield family(Metric.AGENT_PUBLISHES, ((), agent.published))

"""What Prometheus reads of a node: its cards, the containers on them, and the agent's own health.

Everything is gathered when it is asked for; nothing is counted twice. A figure that belongs to a container as
a whole (denied allocations, last activity) has no `uuid`: it would be summed once for each of its cards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import Limits, Usage
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.grants import granted_on

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ContainerSlot(NamedTuple):
    """A slot, whose it is, and what its files say."""

    uid: str
    """The pod's."""
    namespace: str
    pod: str
    container: str
    limits: Limits
    usage: Usage


class AgentHealth(NamedTuple):
    """How the agent itself is."""

    registered: bool
    """With the kubelet, as a device plugin."""
    pod_resources: bool
    """Whether the kubelet's pod-resources answered when it was last asked."""
    api: bool
    """Whether the API server answered when it was last asked."""
    published: int
    """How often the node's status was written."""
    version: str


class Figures(NamedTuple):
    """Everything at one moment."""

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


def expose(figures: Figures) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(figures))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        yield from _of_cards(self._figures)
        yield from _of_containers(self._figures)
        yield from _of_agent(self._figures)


def _of_cards(figures: Figures) -> Iterator[Metric]:
    told: list[tuple[str, str, Callable[[CardReading], float | None]]] = [
        ("memory_bytes", "Memory of the card that can be granted.", lambda card: card.gpu.memory),
        (
            "memory_granted_bytes",
            "Memory that pods were granted.",
            lambda card: sum(granted_on(card.gpu.uuid, figures.grants).values()),
        ),
        ("memory_used_bytes", "Memory in use, by whomever.", lambda card: card.used),
        (
            "memory_outside_bytes",
            "Memory in use that no grant covers.",
            lambda card: figures.sight.outside.get(card.gpu.uuid, 0) if figures.sight else None,
        ),
        (
            "utilization_ratio",
            "Part of the last sampling period in which a kernel ran.",
            lambda card: None if card.utilization is None else card.utilization / 100,
        ),
        ("healthy", "Whether the card takes new grants.", lambda card: card.problem is None),
    ]
    cards = figures.sight.cards if figures.sight else ()
    for name, help, figure in told:
        family = GaugeMetricFamily(f"cotenant_gpu_{name}", help, labels=("node", "uuid", "index", "model"))
        for card in cards:
            value = figure(card)
            if value is not None:
                gpu = card.gpu
                family.add_metric((figures.node, gpu.uuid, str(gpu.index), gpu.model), float(value))
        yield family


def _of_containers(figures: Figures) -> Iterator[Metric]:
    whose = ("namespace", "pod", "container")
    limit, used, peak = (
        GaugeMetricFamily(f"cotenant_container_memory_{name}_bytes", help, labels=(*whose, "uuid"))
        for name, help in (
            ("limit", "Memory of the card that the container may hold."),
            ("used", "Memory of the card that its processes hold, contexts included."),
            ("peak", "The most that they held at one time."),
        )
    )
    over = CounterMetricFamily(
        "cotenant_container_over_limit_allocations",
        "Allocations beyond the limit that were let through: modes observe and warn.",
        labels=whose,
    )
    denied = CounterMetricFamily(
        "cotenant_container_denied_allocations", "Allocations that the limit refused.", labels=whose
    )
    active = GaugeMetricFamily(
        "cotenant_container_last_activity_seconds",
        "Unix time of the last launch or allocation.",
        labels=whose,
    )
    for slot in figures.slots:
        labels = (slot.namespace, slot.pod, slot.container)
        for at, card in enumerate(slot.limits.cards):
            limit.add_metric((*labels, card.uuid), card.bytes)
            used.add_metric((*labels, card.uuid), slot.usage.used(at))
            peak.add_metric((*labels, card.uuid), slot.usage.peak[at])
        denied.add_metric(labels, slot.usage.denied)
        over.add_metric(labels, slot.usage.over)
        if slot.usage.last_active:
            ago = max(0.0, (figures.monotonic_ns - slot.usage.last_active) / 1e9)
            active.add_metric(labels, round(figures.unix - ago, 1))
    yield from (limit, used, peak, denied, over, active)


def _of_agent(figures: Figures) -> Iterator[Metric]:
    agent = figures.agent
    info = GaugeMetricFamily("cotenant_agent_info", "The agent's version.", labels=("node", "version"))
    info.add_metric((figures.node, agent.version), 1)
    yield info
    for name, help, value in (
        ("registered", "Whether the kubelet knows the agent as a device plugin.", agent.registered),
        (
            "pod_resources_reachable",
            "Whether pod-resources answered last.",
            agent.pod_resources,
        ),
        ("api_reachable", "Whether the API server answered last.", agent.api),
    ):
        yield GaugeMetricFamily(f"cotenant_agent_{name}", help, value=float(value))
    if figures.sight is not None:
        yield GaugeMetricFamily(
            "cotenant_agent_survey_age_seconds",
            "Time since the cards were last looked at.",
            value=max(0.0, figures.now - figures.sight.at),
        )
    yield CounterMetricFamily(
        "cotenant_agent_publishes", "How often the node's status was written.", value=agent.published
    )


def moment() -> tuple[float, float, int]:
    """`now`, `unix` and `monotonic_ns` of figures that are gathered now."""
    ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return ns / 1e9, time.time(), ns

"""Exports the metrics of a node: its GPUs, the containers on them, and the agent itself.

All values are read when Prometheus scrapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from cotenant.observe.metrics import Metric
from cotenant.observe.text_format import Family, family, text_of_families
from cotenant.observe.view import View
from cotenant.observe.view_metrics import of_containers, of_gpus


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
    gpus = () if figures.survey_age is None else of_gpus(figures.view)
    return text_of_families(chain(gpus, of_containers(figures.view, figures.unix), _of_agent(figures)))


def _of_agent(figures: Figures) -> Iterator[Family]:
    agent = figures.agent
    yield family(Metric.AGENT_INFO, *(((node.name, agent.version), 1) for node in figures.view.nodes))
    yield family(Metric.AGENT_REGISTERED, ((), agent.registered))
    yield family(Metric.AGENT_POD_RESOURCES_REACHABLE, ((), agent.pod_resources))
    yield family(Metric.AGENT_API_REACHABLE, ((), agent.api))
    if figures.survey_age is not None:
        yield family(Metric.AGENT_SURVEY_AGE, ((), figures.survey_age))
    yield family(Metric.AGENT_PUBLISHES, ((), agent.published))

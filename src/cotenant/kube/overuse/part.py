"""Evicts pods that hold more GPU memory than their limit, as a part of the server that leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import LEASES, PODS
from cotenant.kube.events import EventRecorder
from cotenant.kube.nodes.agent_reports import AgentReports, agent_leases
from cotenant.kube.overuse.evicting import OveruseEvicting
from cotenant.kube.overuse.settings import LimitsSettings
from cotenant.kube.parts.part import Context, Part, Term
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import counter
from cotenant.observe.metrics import Metric


class Overuse(Part):
    """Reads what agents report, and evicts by the policy."""

    name = "overuse"
    leader_only = True
    section = ("limits", LimitsSettings)

    def __init__(self, context: Context) -> None:
        pods, agents = context.informers[PODS].store, AgentReports(context.informers[LEASES].store)
        evictions = counter(Metric.LIMIT_EVICTIONS, context.registry)
        self._evicting = OveruseEvicting(
            context.client,
            pods,
            context.section(LimitsSettings),
            context.use(EventRecorder),
            context.leading.must_lead,
            agents.gone,
            counted=lambda outcome: evictions.labels(outcome).inc(),
        )
        pods.subscribe(self._evicting.on_pod)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (Need(PODS, gpu_fields(settings.dialects)), agent_leases(settings.namespace))

    async def begin(self, term: Term) -> None:
        del term
        self._evicting.begin()

    async def run(self) -> None:
        await self._evicting.run()

"""Says on which nodes the agent reports, by the Leases that agents renew.

An agent writes what it finds of its pods at changes only. So what it wrote last may be old, and would be
taken for true after the agent's end. While all that it wrote is true, it renews a Lease of its own, as a
kubelet does for its node. A node of which no renewal is seen has no agent that reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cotenant.kube.api.client import Selection
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Lease
from cotenant.kube.api.resources import LEASES
from cotenant.kube.api.store import Change, Store

RENEW = 10.0
"""Seconds between two renewals."""
SILENT = 30.0
"""Seconds without a renewal after which an agent counts as gone."""
_PREFIX = "cotenant-agent-"
_LONGEST = 253
"""Characters of the name of a Lease."""


def lease_of(node: str) -> str:
    """Names the Lease of a node's agent."""
    return f"{_PREFIX}{node}"[:_LONGEST]


def is_agents(lease: Lease) -> bool:
    """Whether it is the Lease of an agent."""
    return lease.metadata.name.startswith(_PREFIX)


def agent_leases(namespace: str) -> Need[Lease]:
    """Declares that a part watches the Leases of agents; `namespace`: that of Cotenant's own objects."""
    return Need(LEASES, selection=Selection(namespace=namespace))


@dataclass
class AgentReports:
    """Follows the Leases. A renewal counts from when it is seen here, by a monotonic clock: clocks of nodes
    differ, and jump. Only a Lease that was there before is judged by its own time.
    """

    leases: Store[Lease]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _renewed: dict[str, float] = field(default_factory=dict, init=False)
    """By the Lease's name."""

    def __post_init__(self) -> None:
        self.leases.subscribe(self._on_lease)

    def gone(self, node: str) -> str | None:
        """Says why what the agent of this node wrote is not to be believed; None if it is."""
        if lease_of(node) not in self._renewed:
            return f"no agent of Cotenant reports from node {node}"
        return self.silent(node)

    def silent(self, node: str) -> str | None:
        """Says for how long an agent that did report does so no longer; None if there never was one."""
        at = self._renewed.get(lease_of(node))
        silent = 0.0 if at is None else self.clock() - at
        return f"the agent of node {node} has not reported for {silent:.0f} s" if silent > SILENT else None

    def count_silent(self) -> int:
        """Counts the agents that did report and do so no longer."""
        now = self.clock()
        return sum(now - at > SILENT for at in self._renewed.values())

    def _on_lease(self, change: Change[Lease]) -> None:
        name, spec = change.object.metadata.name, change.object.spec
        if not is_agents(change.object):
            return
        if change.kind == "deleted":
            self._renewed.pop(name, None)
        elif change.kind == "added":
            age = self.wall() - spec.renew_time.timestamp() if spec.renew_time is not None else SILENT
            self._renewed[name] = self.clock() - max(0.0, age)
        elif change.before is None or change.before.spec.renew_time != spec.renew_time:
            self._renewed[name] = self.clock()

"""Keeps what holds the containers of a node: the chosen enforcer, and what was found of each container.

Other parts read it: what is published of the node, the view of /state and /metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.hardware.enforcers.choosing import Choice
from cotenant.kube.agent.limits.overuse import Overuse
from cotenant.kube.agent.slots.confirming import Confirming

_BEHIND = {"driver": "shim"}
"""What is left of an enforcer that was asked for and cannot be used."""


@dataclass
class Enforcement:
    """For one event loop: nothing here awaits."""

    asked: str
    """The enforcer that containers are to be held with: the one that was chosen."""
    confirming: Confirming
    choice: Choice | None = None
    """None before the driver was asked."""
    undecided: bool = False
    """Whether an enforcer is about to be chosen."""
    over: Mapping[str, tuple[Overuse, ...]] = field(default_factory=dict)
    """By slot: what is over its limit now, also for less than the grace."""
    some: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set while containers start that nobody has taken up."""
    _starting: dict[str, None] = field(default_factory=dict)

    @property
    def offered(self) -> str:
        """The strongest that the node really offers."""
        if self.choice is not None and self.choice.problem is not None:
            return _BEHIND.get(self.asked, "none")
        return self.asked

    def holds(self, key: str) -> str:
        """Names what holds the container of this slot; empty while that is unknown."""
        found = self.confirming.findings.get(key)
        return found.by if found is not None else ""

    def over_bytes(self, key: str) -> int:
        return sum(each.over for each in self.over.get(key, ()))

    def started(self, key: str) -> None:
        """Notes that the container of this slot is about to start."""
        self._starting[key] = None
        self.some.set()

    def take_started(self) -> list[str]:
        taken, self._starting = list(self._starting), {}
        self.some.clear()
        return taken

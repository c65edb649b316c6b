"""Builds the enforcers of a node, and chooses the one that holds its containers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cotenant.hardware import libraries
from cotenant.hardware.cgroup_folders import scratch
from cotenant.hardware.driver_limits import DriverLimits
from cotenant.hardware.enforcers.choosing import Choice, Wanted, choose
from cotenant.hardware.enforcers.driver import Driver
from cotenant.hardware.enforcers.enforcer import Enforcer
from cotenant.hardware.enforcers.null import Null
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.enforcers.watch import Watch
from cotenant.kube.agent.cards.driver import NodeCards
from cotenant.kube.agent.limits.container_cgroups import ContainerCgroups
from cotenant.kube.agent.settings import AgentSettings


class NodeEnforcers:
    """All that this node is built with. `choose()` is for a thread: it asks the driver."""

    def __init__(
        self, settings: AgentSettings, cards: NodeCards, cgroups: ContainerCgroups | None = None
    ) -> None:
        root = Path(settings.slots)
        self.wanted: Wanted = settings.enforcer
        self.cgroups = cgroups or ContainerCgroups()
        self.shim = Shim(libraries.shim(), root)
        limits = DriverLimits(cards.nvml())
        self.driver = Driver(self.shim, limits, self.cgroups.of_slot, partial(scratch, self.cgroups.root))
        self.watch = Watch(cards.nvml().read)

    def first(self) -> Enforcer:
        """Returns what containers are prepared with before the driver was asked: it mounts the same as the
        one that will be chosen.
        """
        fixed: dict[Wanted, Enforcer] = {"driver": self.driver, "watch": self.watch, "none": Null()}
        return fixed.get(self.wanted, self.shim)

    def choose(self) -> Choice:
        return choose(self.wanted, (self.driver, self.shim, self.watch))

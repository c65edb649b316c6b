"""Collects what is known of one pod that a person asks about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.kube.api.objects import Node, Pod, Terminated
from cotenant.kube.pods.eligibility import ANYWHERE, Placement
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.settings import Settings


@dataclass(frozen=True)
class Case:
    pod: Pod
    now: float
    """Unix time."""
    placements: Mapping[str, Placement] = field(default_factory=dict)
    """On which nodes pods that have none may be placed, by UID: this pod and those in line with it."""
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """All of the cluster: the line and the cards are everybody's."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of its namespace."""
    settings: Settings = field(default_factory=Settings)
    """Of the installation, as far as they can be read."""
    terminated: Mapping[str, Terminated] = field(default_factory=dict)
    """How its containers ended the last time, by name."""
    warning: str = ""
    """The newest of its warning events."""
    whole: bool = True
    """Whether nodes and pods are those of the cluster; False: the person who asks may not see them."""

    @property
    def name(self) -> str:
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def placement(self) -> Placement:
        return self.placements.get(self.pod.metadata.uid, ANYWHERE)

    @property
    def flags(self) -> str:
        """As kubectl names it."""
        return f"-n {self.pod.metadata.namespace} {self.pod.metadata.name}"

    @property
    def target(self) -> str:
        return f"pod {self.name}"

    @property
    def waited(self) -> float:
        """Seconds since the pod was created."""
        return max(0.0, self.now - created_at(self.pod, self.now))

    @property
    def scheduler_says(self) -> str:
        """Returns why it is not bound, as kube-scheduler wrote it into the pod's status."""
        found = (each for each in self.pod.status.conditions if each.type == "PodScheduled")
        return next((each.message for each in found if each.status == "False"), "")

    def node(self, name: str) -> Node | None:
        return next((each for each in self.nodes if each.metadata.name == name), None)


def as_age(seconds: float) -> str:
    """Formats seconds as kubectl shows an age, in one unit: `90s`, `12m`, `5h`, `3d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"

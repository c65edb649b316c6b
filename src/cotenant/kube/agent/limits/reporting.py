"""Writes the pod condition `cotenant.dev/GPULimitHeld` where it differs from what was found, and nothing
else.

Figures of a pod that is over change all the time: they are written when the reason or the containers change,
not at every look.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from msgspec.structs import replace

from cotenant.dialects import names
from cotenant.kube.agent.limits.verdict import Verdict
from cotenant.kube.agent.pod_conditions import ConditionWrite, ConditionWriter
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.objects import Condition, Pod
from cotenant.kube.api.resources import Resource
from cotenant.kube.api.store import Store

_APART = 3.0
"""Seconds between two writes of one pod, unless the second says that a limit does not hold."""
_FIGURES = re.compile(r"[0-9][0-9.]*(?:Ki|Mi|Gi|Ti|Pi)?")


@dataclass
class LimitReporter:
    """Compares and writes. `report()` is called after each look."""

    client: Client
    pods: Store[Pod]
    resource: Resource[Pod]
    """How pods are watched: what a write returns is kept in the same form."""
    changed: Callable[[Pod, Verdict], None] = lambda _, __: None
    """Called once for each verdict that says something new, also if it cannot be written."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)
    random: Random = field(default_factory=Random, repr=False)
    _told: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._writer = ConditionWriter(
            names.GPU_LIMIT_HELD, self.client, self.pods, self.resource, clock=self.clock, random=self.random
        )

    @property
    def trouble(self) -> KubeError | None:
        return self._writer.trouble

    async def report(self, verdicts: Mapping[str, Verdict]) -> bool:
        """Writes what differs; returns whether nothing did. `verdicts` by pod UID."""
        self._writer.keep(verdicts)
        self._told = {uid: each for uid, each in self._told.items() if uid in verdicts}
        due, same = [], True
        for uid, verdict in verdicts.items():
            pod = self.pods.get(uid)
            write = self.wanted(pod, verdict) if pod is not None else None
            if write is not None:
                same = False
                self._tell(write.pod, verdict)
                if self._is_due(write):
                    due.append(write)
        await self._writer.write(due)
        return same

    def wanted(self, pod: Pod, verdict: Verdict) -> ConditionWrite | None:
        """Returns the condition that the pod should have and does not; None if it is as it should be. It is
        urgent if a limit does not hold any more. Its time is that of the last change of status or reason.
        """
        found = self._writer.shown(pod)
        wanted = Condition(names.GPU_LIMIT_HELD, verdict.status, verdict.reason, verdict.message, self.wall())
        if found is None or (found.status, found.reason) != (verdict.status, verdict.reason):
            return ConditionWrite(pod, wanted, urgent=verdict.status == "False")
        held = verdict.status == "True"
        same = found.message == verdict.message if held else _words(found.message) == _words(verdict.message)
        at = found.last_transition_time or wanted.last_transition_time
        return None if same else ConditionWrite(pod, replace(wanted, last_transition_time=at))

    def _is_due(self, write: ConditionWrite) -> bool:
        if self._writer.is_put_off(write.uid):
            return False
        return write.urgent or self._writer.seconds_since_write(write.uid) >= _APART

    def _tell(self, pod: Pod, verdict: Verdict) -> None:
        new = (verdict.reason, _words(verdict.message))
        if self._told.get(pod.metadata.uid) != new:
            self._told[pod.metadata.uid] = new
            self.changed(pod, verdict)


def _words(message: str) -> str:
    """Leaves out figures: sizes and pids."""
    return _FIGURES.sub("#", message)

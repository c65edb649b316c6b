"""Keeps what one GpuScaler needs between two rounds, and restores it from its status when a term begins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.core.scaling import Decision, Memory, Sample, ScalingPolicy, decide
from cotenant.core.scaling_input import LONGEST
from cotenant.kube.scaler.by_hand import ByHand
from cotenant.kube.scaler.conflicts import Aim, aim_of
from cotenant.kube.scaler.replicas import Replicas
from cotenant.kube.scaler.resource import GpuScaler, read_spec
from cotenant.kube.scaler.status import Shown
from cotenant.scaling.specification import GpuScalerSpec

_GAP = 60.0
"""Seconds. `decide` counts a longer gap between two polls as this long."""
_STEPS = 30
"""Gaps after which nothing is left of a load that idleness has ended; all before them are one step. A leader
begins with a thousand scalers that have idled for days, and others wait for it.
"""
_POLLS = 12.0
"""`decide` counts so many polls as observed."""
_LAGS = 30.0
"""Seconds for which the watch may still show what a target had before our patch."""


@dataclass
class Scaled:
    """One GpuScaler. Made when it is first seen in a term."""

    scaler: GpuScaler
    poll: float
    spec: GpuScalerSpec | None = None
    bad: str | None = None
    """Why its spec cannot be read."""
    memory: Memory = field(default_factory=Memory)
    by_hand: ByHand | None = None
    expected: int | None = None
    """Replicas that the target has by our knowledge; None: whatever it has is taken as it is."""
    sent: tuple[int, int, float] | None = None
    """Our last patch: from how many to how many replicas, and when; None once the target shows it."""
    scaled_at: float = float("-inf")
    """Unix time of our last patch that was carried out."""
    restored: bool = False
    """What was remembered comes from the status, and no poll has been since."""
    was_busy: bool = False
    """By the status: it was at work when it was last written."""
    counted: set[str] = field(default_factory=set)
    """UIDs of replicas whose start has been counted."""
    service: float | None = None
    """Seconds that a message takes, by the last decision."""
    shown: Shown | None = None
    """What the last round had to say."""
    written: Shown | None = None
    """What the status shows."""
    written_at: float = float("-inf")
    resumed: float = float("-inf")
    """Unix time at which work came back after idleness that had been written."""
    version: str = ""
    """The resourceVersion that a write of the status is guarded by."""

    @classmethod
    def restore(cls, scaler: GpuScaler, poll: float) -> Scaled:
        one = cls(scaler, poll)
        one.take(scaler)
        kept = scaler.status.memory
        one.memory = Memory.from_json(kept.get("decision"))
        one.restored = one.memory.wall is not None
        one.was_busy = not kept.get("idle")
        one.by_hand = ByHand.from_json(kept.get("byHand"))
        one.sent = _sent(kept.get("scale"))
        return one

    def take(self, scaler: GpuScaler) -> None:
        """Takes over a newer state of the object. What was learned stays when its spec is edited."""
        changed = self.spec is None or scaler.metadata.generation != self.scaler.metadata.generation
        self.scaler, self.version = scaler, scaler.metadata.resource_version
        if changed or self.bad is not None:
            try:
                self.spec, self.bad = read_spec(scaler), None
            except BadInput as error:
                self.spec, self.bad = None, str(error)

    @property
    def aim(self) -> Aim | None:
        return None if self.spec is None else aim_of(self.spec.target, self.scaler.metadata.namespace)

    def lags(self, replicas: int, now: float) -> bool:
        """Reports whether the watch still shows the target as it was before our patch."""
        if self.sent is None:
            return False
        before, to, at = self.sent
        if replicas == before != to and 0 <= now - at < _LAGS:
            return True
        self.expected = replicas if replicas in (before, to) else to
        self.sent = None
        return False

    def starts(self, replicas: Replicas, since: float) -> tuple[float, ...]:
        """Returns how long the starts took that ended since the last poll, each counted once. After a
        restart, those that ended before it were counted.
        """
        ended = []
        for each in replicas.ready:
            if each.uid in self.counted:
                continue
            self.counted.add(each.uid)
            if each.ready is not None and each.bound is not None and each.ready >= since:
                ended.append(max(0.0, each.ready - each.bound))
        self.counted &= {each.uid for each in replicas.all}
        return tuple(ended)

    def decide(self, policy: ScalingPolicy, sample: Sample, now: float) -> Decision:
        """Decides as if there had been no restart: a workload that idled has idled on, and one that worked
        has worked until now.
        """
        memory = self.memory
        if not self.restored:
            return decide(policy, memory, sample, now)
        if not self.was_busy:
            memory = _caught_up(policy, memory, sample, now)
        decision = decide(policy, memory, sample, now)
        if self.was_busy and decision.memory is not memory and decision.idle_for > 0:
            worked = replace(memory, busy_at=decision.memory.clock)
            return decide(policy, worked, sample, now)
        return decision

    def decided(self, decision: Decision) -> None:
        """Takes over what the decision remembers. One without figures leaves all as it was."""
        if decision.memory is not self.memory:
            self.restored = self.restored and decision.need is None
        self.memory, self.service = decision.memory, decision.service

    def to_json(self, *, idle: bool) -> dict[str, Any]:
        """Returns all that a restart must know. Always with the same keys: a merge patch keeps others."""
        scale: list[int] = [] if self.expected is None else [self.expected, self.expected]
        if self.sent is not None:
            scale = [self.sent[0], self.sent[1]]
        return {
            "decision": self.memory.to_json(),
            "idle": idle,
            "byHand": [] if self.by_hand is None else self.by_hand.to_json(),
            "scale": scale,
        }


def _sent(stored: object) -> tuple[int, int, float] | None:
    """Reads our last patch. What the API server shows at the start of a term is newer."""
    if (
        isinstance(stored, list)
        and len(stored) == 2
        and all(isinstance(each, int | float) for each in stored)
    ):
        return int(stored[0]), int(stored[1]), float("-inf")
    return None


def _caught_up(policy: ScalingPolicy, memory: Memory, sample: Sample, now: float) -> Memory:
    """Fills the gap that nobody observed with polls that found the same figures: of an idle workload nothing
    is written, however long it idles, so its status is as old as its idleness.
    """
    figures, at = memory.figures, memory.wall
    if figures is None or at is None or sample.backlog is None:
        return memory
    same = (sample.backlog, sample.arrived, sample.completed, sample.in_flight) == (
        figures.backlog,
        figures.arrived,
        figures.completed,
        figures.in_flight,
    )
    if not same or sample.backlog or sample.in_flight or sample.active:
        return memory
    steps = int((now - at) // _GAP)
    quiet = replace(sample, cold_starts=())
    if steps > _STEPS:
        whole = (steps - _STEPS) * _GAP
        at, steps = at + whole, _STEPS
        slow = replace(policy, poll=min(max(policy.poll, whole / _POLLS + 1.0), LONGEST))
        memory = decide(slow, memory, replace(quiet, at=at), at).memory
    for step in range(1, steps + 1):
        then = at + step * _GAP
        memory = decide(policy, memory, replace(quiet, at=then), then).memory
    return memory

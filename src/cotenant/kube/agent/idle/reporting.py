"""Writes the pod condition `cotenant.dev/GPUIdle` where it differs from what was found, and nothing else.

A pod that has never been idle gets no condition. `lastTransitionTime` is, if the status is True, the time of
the last activity; if False, that of the first activity that was seen after it; if Unknown, that of the write.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from cotenant.dialects import names
from cotenant.kube.agent.idle.rhythm import Rhythm
from cotenant.kube.agent.idle.verdict import SECOND, Activity, Verdict, verdict
from cotenant.kube.agent.pod_conditions import ConditionWrite, ConditionWriter
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.objects import Condition, Pod, find_condition
from cotenant.kube.api.resources import Resource
from cotenant.kube.api.store import Store
from cotenant.kube.api.timestamps import timestamp

_SAME = 3.0
"""Seconds. Two times of the last activity that are closer are the same: the API keeps whole seconds."""


@dataclass
class IdleReporter:
    """Compares and writes. `report()` is called after each look."""

    client: Client
    pods: Store[Pod]
    resource: Resource[Pod]
    """How pods are watched: what a write returns is kept in the same form."""
    rhythm: Rhythm
    wrote: Callable[[str], None] = lambda _: None
    """Called with the status after each write."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    random: Random = field(default_factory=Random, repr=False)
    _shown: dict[str, tuple[str, tuple[Activity, ...]]] = field(default_factory=dict, init=False)
    """Pods that are shown as idle or unknown, and rightly so: in this version, with these activities. That
    stays so while both are the same, as idle pods only get idle for longer.
    """
    _booted: float = field(default=0.0, init=False)
    _began: dict[str, datetime] = field(default_factory=dict, init=False)
    """When a pod was first seen at work, while that is not written: a repeated write says the same."""

    def __post_init__(self) -> None:
        self._writer = ConditionWriter(
            names.GPU_IDLE, self.client, self.pods, self.resource, self._wrote, self.clock, self.random
        )

    @property
    def trouble(self) -> KubeError | None:
        """Why a write failed; None if all of the last ones succeeded."""
        return self._writer.trouble

    async def report(self, activities: Mapping[str, tuple[Activity, ...]], now: int) -> bool:
        """Writes what differs; returns whether every pod that is shown as idle is so, and since then.
        `activities` by pod UID, seen at `now`, in CLOCK_MONOTONIC nanoseconds.
        """
        self._forget_all_but(activities)
        self._follow_clock(self.wall() - now / SECOND)
        wanted = [
            write
            for uid, each in activities.items()
            if (pod := self.pods.get(uid)) is not None
            and self._shown.get(uid) != (pod.metadata.resource_version, each)
            and (write := self.wanted(pod, each, now)) is not None
        ]
        due = [write for write in wanted if self._is_due(write)]
        done = await self._writer.write(sorted(due, key=lambda write: not write.urgent))
        return not any(write.urgent and write.uid not in done for write in wanted)

    def _follow_clock(self, booted: float) -> None:
        """Compares all times anew when the wall clock was set. `booted`: its time at 0 of the other clock."""
        if abs(booted - self._booted) > 1.0:
            self._shown.clear()
            self._booted = booted

    def _is_due(self, write: ConditionWrite) -> bool:
        if self._writer.is_put_off(write.uid):
            return False
        working = write.condition.status == "False"
        return write.urgent or working or self.rhythm.may_report(write.uid, self.clock())

    def _forget_all_but(self, uids: Container[str]) -> None:
        self.rhythm.keep(uids)
        self._writer.keep(uids)
        self._began = {uid: each for uid, each in self._began.items() if uid in uids}
        self._shown = {uid: each for uid, each in self._shown.items() if uid in uids}

    def wanted(self, pod: Pod, activities: tuple[Activity, ...], now: int) -> ConditionWrite | None:
        """Returns the condition that the pod should have and does not; None if it is as it should be. It is
        urgent if the pod is shown as idle, and that is not so, or not since then.
        """
        uid = pod.metadata.uid
        found = self._writer.shown(pod)
        shown = found is not None and found.status == "True"
        after = self.rhythm.after if shown else self.rhythm.needed(uid, self.clock())
        want = verdict(activities, now, round(after * SECOND))
        at = self._time(want.at, now)
        if want.status != "False" or found is None or found.status == "False":
            self._began.pop(uid, None)
        if want.status == "False":
            if found is None or found.status == "False" or self._is_no_news(found, want, activities, now):
                return None
            at = self._began.setdefault(uid, at)
        elif found is not None and found.status == want.status:
            apart = 0.0 if want.status == "Unknown" else abs(at.timestamp() - _seconds(found))
            if apart < _SAME:
                self._shown[uid] = (pod.metadata.resource_version, activities)
                return None
        message = f"{want.message} {timestamp(at)}" if want.status == "True" else want.message
        return ConditionWrite(
            pod, Condition(names.GPU_IDLE, want.status, want.reason, message, at), urgent=shown
        )

    def _is_no_news(
        self, found: Condition, want: Verdict, activities: tuple[Activity, ...], now: int
    ) -> bool:
        """Whether a pod is shown as idle, and only seems to start: nothing was used since. A container that
        was ready and is not is not loading.
        """
        if found.status != "True" or want.reason != "Starting":
            return False
        latest = self._time(max(each.last for each in activities), now)
        return latest.timestamp() < _seconds(found) + _SAME

    def _time(self, at: int, now: int) -> datetime:
        """Turns a monotonic time into wall time in whole seconds: not before the activity, nor in the
        future.
        """
        wall = self.wall()
        seconds = min(math.ceil(wall - (now - at) / SECOND), math.floor(wall))
        return datetime.fromtimestamp(seconds, UTC)

    def _wrote(self, write: ConditionWrite) -> None:
        uid, now = write.uid, self.clock()
        if write.condition.status == "False":
            before = find_condition(write.pod.status.conditions, names.GPU_IDLE)
            if before is not None and before.status == "True":
                self.rhythm.resumed(uid, _seconds(write.condition) - _seconds(before), now)
        else:
            self.rhythm.reported(uid, now)
        self._began.pop(uid, None)
        self.wrote(write.condition.status)


def _seconds(condition: Condition) -> float:
    """Returns its Unix time; that of a condition that has none is not near any other."""
    at = condition.last_transition_time
    return at.timestamp() if at is not None else -math.inf

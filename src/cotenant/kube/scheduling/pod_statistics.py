"""Counts every pod once, by its UID, for the policy `frag`: while it runs, and after it has ended.

What a new leader cannot find out by itself is only which pods have ended. So these are counted apart, and are
all that has to be kept: those that run are found in the cluster. No pod is both, hence none counts twice,
however often a server starts and whatever it had written when it was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cotenant.core.seen_pods import PodKind, SeenPods
from cotenant.kube.scheduling.learned import Learned


@dataclass
class EndedPods:
    """The pods that have ended."""

    seen: SeenPods = field(default_factory=SeenPods)
    """What they asked for, bounded."""
    pods: int = 0
    """How many they are."""
    since: float | None = None
    """Unix time since which they are counted; None if not even that is known."""


def seen_in_all(ended: EndedPods, running: Iterable[tuple[PodKind, ...]]) -> SeenPods:
    """Returns what the measure is learned from. It does not depend on the order of the pods."""
    seen = ended.seen.copy()
    seen.count(kind for kinds in running for kind in kinds)
    return seen


class PodStatistics:
    """Tells `learned` of each pod once."""

    def __init__(self, learned: Learned) -> None:
        self.ended = EndedPods()
        self.written = 0
        """How many of those that have ended are in what is kept."""
        self._learned = learned
        self._running: dict[str, tuple[PodKind, ...]] = {}

    @property
    def pods(self) -> int:
        """How many were counted, those that run and those that have ended."""
        return self.ended.pods + len(self._running)

    def knows(self, uid: str) -> bool:
        """Reports whether the pod runs and is counted."""
        return uid in self._running

    def begin(self, ended: EndedPods, running: Mapping[str, tuple[PodKind, ...]]) -> None:
        """Takes over what was kept of the pods that have ended, and those that run, in place of what is
        known. None that runs may have ended before `ended` was read.
        """
        self.ended, self.written, self._running = ended, ended.pods, dict(running)
        self._learned.remember(seen_in_all(ended, self._running.values()))

    def start(self, uid: str, kinds: tuple[PodKind, ...]) -> None:
        """Counts a pod that was placed, if it is not counted yet."""
        if kinds and uid not in self._running:
            self._running[uid] = kinds
            self._learned.count(kinds)

    def end(self, uid: str) -> None:
        """Counts the pod among those that have ended, if it was counted."""
        kinds = self._running.pop(uid, None)
        if kinds is not None:
            self.ended.seen.count(kinds)
            self.ended.pods += 1

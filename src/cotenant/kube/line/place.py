"""Holds what is known of one pod in the line: its nodes, when it was refused, and when it was retried."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.kube.api.objects import Pod
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.scheduling.waiting import WaitingPod

LONGEST_PAUSE = 60.0
"""Seconds between retries of one pod that fits by our ledger and is not bound: something else keeps it."""


@dataclass
class Place:
    """One pod in the line."""

    pod: Pod
    waiting: WaitingPod
    refused: float = float("-inf")
    """By the clock, when our extender or a bind found no room for it last; minus infinity if neither did."""
    asked: float = float("-inf")
    """By the clock, when kube-scheduler last named the nodes that it may go to. Minus infinity: it has not,
    and `waiting.eligible` is a guess, the nodes that take pods.
    """
    retries: int = 0
    """Retries since then."""
    offered: float = float("inf")
    """By the clock, the first of them."""
    retried: float = float("-inf")
    next_retry: float = float("inf")
    tried: float = float("-inf")
    """By the clock, when kube-scheduler first tried it after that and our extender named a node."""
    stays_away: bool = False
    """It was not bound after a retry: something besides GPUs keeps it, and room must not wait for it, until
    our extender has refused it again."""
    left: float = float("-inf")
    """By the clock, when our extender last named victims for it to kube-scheduler."""

    @property
    def is_guessed(self) -> bool:
        """Reports whether kube-scheduler has not named the nodes that it may go to."""
        return self.asked == float("-inf")

    def note_retry(self, now: float, settings: LineSettings) -> None:
        """Notes that kube-scheduler is made to retry it now."""
        self.retries, self.retried = self.retries + 1, now
        self.offered = min(self.offered, now)
        self.next_retry = now + self.pause(settings)

    def pause(self, settings: LineSettings) -> float:
        """Returns the seconds from one retry to the next: twice as long after each."""
        return min(settings.retry * 2.0 ** min(max(1, self.retries) - 1, 32), LONGEST_PAUSE)

    def is_away(self, now: float, settings: LineSettings) -> bool:
        """Reports whether kube-scheduler has had its chance to bind it: it has tried it since the offer, or
        would have, since no backoff lasts longer. About a pod that it has never asked us about it may never:
        that one gets no more than a moment.
        """
        if self.tried >= self.offered:
            return now - self.tried >= settings.retry
        backoff = 0.0 if self.is_guessed else settings.backoff
        return now - self.offered >= backoff + settings.retry

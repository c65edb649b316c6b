"""Decides as a KEDA ScaledObject on a list's length does: an HPA from one replica on, KEDA from zero to one.

The HPA asks for the list's length whenever it syncs, as metric of type AverageValue; KEDA itself looks
every `pollingInterval` (30 s), wakes the workload as soon as the list is not empty, and releases it after
`cooldownPeriod` (300 s) without a message in the list. Messages in work are not seen.
https://keda.sh/docs/latest/reference/scaledobject-spec/
"""

from __future__ import annotations

from dataclasses import replace

from cotenant.simulate.scaling.observation import Answer, Observation
from cotenant.simulate.scaling.policies.hpa import SYNC, HorizontalPodAutoscaler

POLLING = 30.0
COOLDOWN = 300.0


class KedaScaledObject:
    """Joins KEDA's own activation with the HPA that it creates."""

    period = SYNC

    def __init__(
        self, *, target: float, service: float, concurrency: int, minimum: int, maximum: int
    ) -> None:
        """The list's length for each replica is a whole number: the messages that it does in the target."""
        length = max(1, round(target * concurrency / service)) if service > 0 else 1
        self._hpa = HorizontalPodAutoscaler(target=length, service=1.0, maximum=maximum)
        self._minimum = minimum
        self._polled = 0.0
        self._last_message = 0.0

    def decide(self, seen: Observation) -> Answer:
        """Returns the wanted replicas; KEDA's own steps come with its own, slower poll."""
        waiting = 0 if seen.figures is None else seen.figures.backlog
        result = self._hpa.decide(seen) if seen.replicas > 0 else Answer(0)
        if seen.now < self._polled + POLLING:
            return result
        self._polled = seen.now
        if waiting:
            self._last_message = seen.now
        if not seen.replicas:
            return Answer(max(1, self._minimum) if waiting else 0, "activated" if waiting else "")
        released = (
            self._minimum == 0 and seen.figures is not None and seen.now - self._last_message >= COOLDOWN
        )
        return replace(result, replicas=0, state="released") if released and not waiting else result

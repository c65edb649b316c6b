"""Decides by the literal rule: backlog time above the target, one more; below it, one less."""

from __future__ import annotations

from cotenant.simulate.scaling.observation import Answer, Observation

STEP = 15.0
"""Seconds between two steps, as an HPA syncs: the text names no time. Every 5 s it turns twice as often."""


class LiteralRule:
    """Moves by one replica a step. Backlog time is messages times processing time by ready replicas."""

    period = STEP

    def __init__(self, *, target: float, service: float, concurrency: int) -> None:
        self._target = target
        self._service = service / concurrency

    def decide(self, seen: Observation) -> Answer:
        """Adds or removes one replica; without figures nothing changes."""
        if seen.figures is None:
            return Answer(seen.replicas)
        seconds = seen.figures.backlog * self._service / max(1, seen.fleet.ready)
        step = (seconds > self._target) - (seconds < self._target)
        return Answer(
            max(1, seen.replicas + step), reason=f"backlog {seconds:.1f} s, target {self._target:g} s"
        )

"""Decides by `cotenant.core.scaling.decide`, which the cluster's controller and one machine call too."""

from __future__ import annotations

from cotenant.core.scaling import Memory, Sample, ScalingPolicy, decide
from cotenant.simulate.scaling.observation import Answer, Observation


class Ours:
    """Keeps the memory from one decision to the next."""

    def __init__(self, policy: ScalingPolicy, begin: float = 0.0) -> None:
        self.period = policy.poll
        self._policy = policy
        self._begin = begin
        self._memory = Memory()

    def decide(self, seen: Observation) -> Answer:
        """Hands the core what a controller would have read."""
        decision = decide(self._policy, self._memory, _sample(seen), self._begin + seen.now)
        self._memory = decision.memory
        return Answer(decision.replicas, str(decision.state), decision.reason)


def _sample(seen: Observation) -> Sample:
    figures, fleet = seen.figures, seen.fleet
    return Sample(
        backlog=None if figures is None else figures.backlog,
        arrived=None if figures is None else figures.arrived,
        completed=None if figures is None else figures.completed,
        in_flight=None if figures is None else figures.in_flight,
        active=fleet.active,
        ready=fleet.ready,
        starting=fleet.starting,
        waiting=fleet.waiting,
        cold_starts=fleet.cold_starts,
        room=fleet.room,
    )

"""Counts the replicas of one scaler for its decision, and holds all that one round knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cotenant.core.demand import Demand
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.core.scaling import Decision, Sample, ScalingPolicy, State
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.scaler.replicas import Replicas
from cotenant.kube.scaler.scaled import Scaled
from cotenant.kube.scaler.targets import Found
from cotenant.scaling.sampling import Counted, Readings

IDLENESS_UNKNOWN = "IdlenessUnknown"
_MADE = 10.0
"""Seconds in which a workload's controller makes its pods."""
_SCHEDULED = 5.0
"""Seconds in which kube-scheduler tries a new pod."""


@dataclass
class Considered:
    """One scaler in one round."""

    one: Scaled
    found: Found
    replicas: Replicas
    policy: ScalingPolicy
    sample: Sample
    readings: Readings
    decision: Decision = field(init=False)
    held: str | None = None
    """Why it is not released, though its queue says that it is idle."""
    wanted_by: Pod | None = None
    demands: tuple[Demand, ...] = ()
    requests: Requests = NO_REQUESTS
    """What a replica takes of its node beside GPUs."""
    priority: int = 0

    def decide(self, now: float) -> None:
        """Decides by the sample. A workload that its queue calls idle is kept while the agent of a node does
        not report: whether its GPUs work is not known then.
        """
        self.decision, self.held = self.one.decide(self.policy, self.sample, now), None
        releases = self.decision.state is State.IDLE and self.decision.replicas < self.found.replicas
        if releases and self.replicas.silent is not None:
            self.held = f"nothing to do by its queue, and not released: {self.replicas.silent}"
            self.decision = replace(self.decision, replicas=self.found.replicas, reason=self.held)

    @property
    def wants_more(self) -> bool:
        return self.decision.replicas > self.found.replicas

    @property
    def without_gpu(self) -> int:
        """How many replicas are asked for that have no GPU yet."""
        bound = sum(replica.bound is not None for replica in self.replicas.all)
        return max(0, self.found.replicas - bound)

    @property
    def on_their_way(self) -> int:
        """How many of them the sample counts as starting."""
        return max(0, self.without_gpu - self.sample.waiting)

    @property
    def distance(self) -> float:
        """How far it is from its target: the time that its backlog takes, in targets."""
        return (self.decision.backlog_seconds or 0.0) / self.policy.target

    @property
    def failed(self) -> tuple[str, str] | None:
        """Reason and sentence of the first signal that failed."""
        first = next(iter(self.readings.failures), None)
        if first is not None:
            return first.reason, first.message
        return None if self.held is None else (IDLENESS_UNKNOWN, self.held)

    @property
    def differs(self) -> str:
        """Says how far the measured processing time is from the configured one, where it is far."""
        if not self.decision.service_differs or self.policy.service is None:
            return ""
        return f"measured {self.decision.service:.3g} s a message, configured {self.policy.service:.3g} s"


def counted(one: Scaled, found: Found, replicas: Replicas, now: float, wall: float) -> Counted:
    """Counts as many replicas as the target is set to: those that are to be removed no longer count. Pods
    that are still to be made, or were made a moment ago, are on their way; if that lasts, they wait.
    `now` is the clock of decisions, `wall` the machine's: the earlier one tells how old a pod is.
    """
    ahead = max(0.0, now - wall)
    kept = Replicas(replicas.all[max(0, len(replicas.all) - found.replicas) :])
    missing = found.replicas - len(kept.all)
    ages = [max(0.0, now - ahead - (each.bound or now)) for each in kept.starting]
    fresh = [each for each in kept.waiting if now - ahead - created_at(each.pod, now) < _SCHEDULED]
    waiting = len(kept.waiting) - len(fresh)
    if now - one.scaled_at < _MADE:
        ages += [0.0] * missing
    else:
        waiting += missing
    ages += [0.0] * len(fresh)
    since = one.memory.wall if one.memory.wall is not None else now - one.poll
    return Counted(
        ready=len(kept.ready),
        starting=tuple(ages),
        waiting=waiting,
        cold_starts=one.starts(replicas, since - ahead - 1.0),
        active=kept.used_since(since, now),
        at_work=kept.active,
    )


def queued(sample: Sample, count: int) -> Sample:
    """Counts as many of those that were just made as waiting: there is no room for them."""
    if count <= 0:
        return sample
    ages = sorted(sample.starting, reverse=True)
    return replace(sample, starting=tuple(ages[:-count]), waiting=sample.waiting + count)

"""Judges steps of scaled workloads: within bounds, released only when idle, woken only for work. Functions of what was recorded.

All times are Unix seconds. The API server notes in which whole second a step was stored, so a step is an interval of one second,
and judged in favour of the product within it. Besides that `LAG` is allowed on either side, and nothing else: nobody knows of
work before the next look at its queue (one poll), and a decision takes a moment to be carried out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .redisqueues import Message
from .scaledworkloads import ScaledWorkload
from .worktraffic import Attempt

POLL = 1.0
"""Of the servers under test."""
LAG = POLL + 1.0


@dataclass(frozen=True)
class Step:
    """A change of the replicas that are wanted."""

    before: int
    after: int
    at: float
    """Begin of the second in which it was stored."""

    @property
    def end(self) -> float:
        return self.at + 1

    def __str__(self) -> str:
        return f"{self.before} to {self.after} at {self.at:.0f}"


@dataclass(frozen=True)
class PodVersion:
    seen: float
    idle_since: float | None
    """By its condition; None: it is not idle, or nobody says so."""
    bound: float | None
    leaves: bool = False


@dataclass
class PodRecord:
    """All that the API has shown of one replica."""

    workload: str
    versions: list[PodVersion] = field(default_factory=list)

    def between(self, since: float, until: float) -> list[PodVersion]:
        """The versions that were current at some time between."""
        ends = [*(each.seen for each in self.versions[1:]), float("inf")]
        return [
            each for each, end in zip(self.versions, ends, strict=True) if each.seen <= until and end >= since
        ]


def out_of_bounds(workload: ScaledWorkload, replicas: int) -> str | None:
    """An annotated workload has what it had, or nothing."""
    allowed = range(workload.least, workload.most + 1) if workload.queue else (0, workload.most)
    if replicas in allowed:
        return None
    return f"{workload.name} is to have {replicas} replicas, not {workload.least}..{workload.most}"


def released_at_work(workload: ScaledWorkload, step: Step, messages: Iterable[Message]) -> str | None:
    """A message was in its queue, or in work, within the threshold before it was released."""
    since, until = step.end - workload.threshold + LAG, step.at - LAG
    for each in messages:
        if each.since <= until and each.until >= since:
            return (
                f"{workload.name} was released, {step}, with a threshold of {workload.threshold} s: "
                f"{each.id} was there from {each.since:.1f} to {each.until:.1f}"
            )
    return None


def released_not_idle(workload: ScaledWorkload, step: Step, pods: Iterable[PodRecord]) -> str | None:
    """A replica was not idle for the threshold, by its condition, or had its GPU for less.

    One that was first seen within the second of the step may have come after it, by a wake: it counts only where the
    others are fewer than were released.
    """
    latest = step.end - workload.threshold
    there, doubtful = 0, ""
    for each in pods:
        shown = [version for version in each.between(step.at - LAG, step.end) if not version.leaves]
        if not shown:
            continue
        if any(_idle_by(version, latest) for version in shown):
            there += 1
            continue
        wrong = (
            f"{workload.name} was released, {step}, with a threshold of {workload.threshold} s: "
            f"its pod was {shown}"
        )
        if each.versions[0].seen <= step.at:
            return wrong
        doubtful = wrong
    if there < step.before:
        return doubtful or f"{workload.name} was released, {step}: it had only {there} pods"
    return None


def _idle_by(version: PodVersion, latest: float) -> bool:
    return (
        version.idle_since is not None
        and version.idle_since <= latest
        and version.bound is not None
        and version.bound <= latest
    )


def woken_without_work(
    workload: ScaledWorkload, step: Step, slept: float, messages: Iterable[Message]
) -> str | None:
    """No message was there, and none had come since it went to zero, at `slept`."""
    for each in messages:
        if each.sent <= step.end and (each.until >= step.at - LAG or each.sent >= slept - LAG):
            return None
    return f"{workload.name} was woken, {step}, without a message since {slept:.0f}"


def woken_by_nobody(workload: ScaledWorkload, step: Step, attempts: Iterable[Attempt]) -> str | None:
    for each in attempts:
        if each.name == workload.name and each.began <= step.end and each.ended >= step.at:
            return None
    return f"{workload.name} was woken, {step}, and nobody had asked for it"


def margin(workload: ScaledWorkload, step: Step, messages: Sequence[Message]) -> float:
    """For how many seconds it was idle before a release beyond its threshold, at most."""
    last = max((each.until for each in messages if each.since <= step.at - LAG), default=float("-inf"))
    return step.end - last - workload.threshold

"""Replays the same arrivals by several policies, on a cluster as it is and with changes, and adds up what
came of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.learning import Supply, mean_bytes
from cotenant.core.seen_pods import SeenPods, pod_kinds
from cotenant.kube.scheduling.stranded import Cause, Stranded, TypicalPod, stranded, typical
from cotenant.simulate.placement.arriving import Coming, Schedule, schedule
from cotenant.simulate.placement.cluster import DefaultScheduler, SimulatedCluster
from cotenant.simulate.placement.refused import Lack, lack
from cotenant.simulate.placement.running import Placed, run
from cotenant.simulate.placement.workload import Arrival, Recording, SimulatedNode, SimulatedPod

SLICES = 60
"""Moments at which the cluster is looked at."""

Progress = Callable[[float, str], None]
"""Is told which part of the work is done, and what is being done."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A cluster and the sizes of the pods, as they are or with changes."""

    name: str
    nodes: tuple[SimulatedNode, ...]
    pods: tuple[SimulatedPod, ...]
    """In the order of the recording."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is simulated."""

    recording: Recording
    variants: Sequence[Variant]
    """The first is the recording as it is."""
    policies: Sequence[str]
    seeds: Sequence[int]
    coming: Coming
    plain_by_policy: bool = False
    """Whether pods without GPU are placed by the policy too, instead of kube-scheduler's defaults."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster after a part of the pods has come, in bytes."""

    pods: int
    """How many have come."""
    allocated: int
    free: Stranded
    asked: int
    """By those that have come since the moment before."""
    refused: int


@dataclass
class Run:
    """What came of one seed."""

    seed: int
    room: int
    """Bytes that can be granted in all."""
    pods: int = 0
    """Those that count."""
    asked: int = 0
    refused: int = 0
    refused_pods: int = 0
    lacks: dict[Lack, tuple[int, int]] = field(default_factory=dict)
    """For each reason how many pods were refused, and how many bytes of GPU memory they asked for."""
    timeline: list[Moment] = field(default_factory=list)
    steady_from: int | None = None
    """Where pods come and go: how many have come when the cluster is filled as usual; None: nobody leaves."""

    @property
    def measured(self) -> list[Moment]:
        """The moments over which means are taken: the last, if nobody leaves."""
        if self.steady_from is None:
            return self.timeline[-1:]
        return [each for each in self.timeline if each.pods > (self.steady_from or 0)]

    def mean(self, of: Callable[[Moment], float]) -> float:
        return sum(map(of, self.measured)) / len(self.measured)

    @property
    def allocated(self) -> float:
        """Bytes."""
        return self.mean(lambda each: each.allocated)

    @property
    def stranded(self) -> float:
        return self.mean(lambda each: each.free.bytes)

    def stranded_by(self, cause: Cause) -> float:
        return self.mean(lambda each: each.free.causes[cause])


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one cluster."""

    policy: str
    variant: Variant
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        return f"{self.policy} {self.variant.name}" if self.variant.name else self.policy

    def mean(self, of: Callable[[Run], float]) -> float:
        return sum(map(of, self.runs)) / len(self.runs)

    @property
    def allocated(self) -> float:
        """Percent of what can be granted."""
        return self.mean(lambda each: percent(each.allocated, each.room))

    @property
    def refused(self) -> float:
        """Percent of the GPU memory that was asked for."""
        return self.mean(lambda each: percent(each.refused, each.asked))

    @property
    def stranded(self) -> float:
        """Percent of what can be granted."""
        return self.mean(lambda each: percent(each.stranded, each.room))

    def stranded_by(self, cause: Cause) -> float:
        return self.mean(lambda each: percent(each.stranded_by(cause), each.room))

    def refused_by(self, reason: Lack) -> float:
        return self.mean(lambda each: percent(each.lacks.get(reason, (0, 0))[1], each.asked))

    def refused_pods_by(self, reason: Lack) -> float:
        return self.mean(lambda each: each.lacks.get(reason, (0, 0))[0])


def percent(part: float, of: float) -> float:
    return 100 * part / of if of else 0.0


def compare(question: Question, progress: Progress | None = None) -> list[Row]:
    """Replays every policy on every variant, with the same arrivals."""
    recording = question.recording
    sizes = _sizes(recording)
    base = question.variants[0]
    own = [sizes(pod) for pod in base.pods]
    room = room_of(SimulatedCluster(base.nodes))
    schedules = {seed: schedule(recording, own, room, question.coming, seed) for seed in question.seeds}
    rows = list[Row]()
    total = len(question.policies) * len(question.variants) * len(question.seeds)
    done = 0
    for variant in question.variants:
        common = _typical(variant)
        for policy in question.policies:
            pods = [pod.by(policy) for pod in variant.pods]
            runs = list[Run]()
            for seed, coming in schedules.items():
                tally = _Tally(seed, len(coming.pods), common, _part(progress, done, total, policy, variant))
                if question.coming.departures:
                    tally.run.steady_from = coming.skip
                _replay(question, variant, pods, coming, sizes, tally)
                runs.append(tally.run)
                done += 1
            rows.append(Row(policy, variant, tuple(runs)))
    return rows


def _sizes(recording: Recording) -> Callable[[SimulatedPod], int]:
    """Returns a function that says what a pod asks for, the same in all variants: of whole cards and parts of
    cards, the mean over the cards that are there.
    """
    supply, known = Supply(), dict[SimulatedPod, int]()
    for node in recording.nodes:
        supply.add(node.gpus, node.has)

    def size(pod: SimulatedPod) -> int:
        found = known.get(pod)
        if found is None:
            found = known[pod] = round(sum(mean_bytes(demand, supply) for demand in pod.demands))
        return found

    return size


def _typical(variant: Variant) -> tuple[TypicalPod, ...]:
    """Counts all that are recorded: unlike those that a cluster sees, they are not too many."""
    supply = Supply()
    for node in variant.nodes:
        supply.add(node.gpus, node.has)
    counts = Counter(kind for pod in variant.pods for kind in pod_kinds(pod.demands, pod.cpu, pod.memory))
    return typical(SeenPods(dict(counts), counts.total()), supply)


def _part(progress: Progress | None, done: int, total: int, policy: str, variant: Variant) -> Progress:
    """Returns the progress of one of several runs."""

    def report(part: float, what: str) -> None:
        if progress is not None:
            progress((done + part) / total, f"{policy}{variant.name and ' ' + variant.name}: {what}")

    return report


def _replay(
    question: Question,
    variant: Variant,
    pods: Sequence[SimulatedPod],
    coming: Schedule,
    sizes: Callable[[SimulatedPod], int],
    tally: _Tally,
) -> None:
    scheduler = None if question.plain_by_policy else DefaultScheduler(variant.nodes, tally.run.seed)
    cluster = SimulatedCluster(variant.nodes, scheduler)
    there = list[tuple[float, str, int]]()
    for at, ends in coming.kept.items():
        kept = question.recording.pods[at]
        cluster.keep(kept.uid, kept.node, kept.pod, kept.shares)
        there.append((ends, kept.uid, sizes(kept.pod)))
    moments: Sequence[float | None] = coming.moments or [None] * len(coming.pods)
    arrivals = (
        Arrival(pods[at], stays, moment)
        for at, stays, moment in zip(coming.pods, coming.stays, moments, strict=True)
    )
    tally.begin(cluster)
    run(cluster, arrivals, sizes, coming.skip, there=there, watch=tally)


class _Tally:
    """Counts while a run goes on."""

    def __init__(self, seed: int, arrivals: int, common: Sequence[TypicalPod], progress: Progress) -> None:
        self.run = Run(seed, 0)
        self._arrivals, self._common, self._progress = arrivals, common, progress
        self._asked = self._refused = 0
        self._next = 0

    def begin(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.run.room = room_of(cluster)

    def __call__(self, placed: Placed) -> None:
        run = self.run
        self._asked += placed.size
        self._refused += 0 if placed.fits else placed.size
        if placed.counted:
            run.pods += 1
            run.asked += placed.size
            if not placed.fits:
                self._count_refused(placed)
        come = placed.number + 1
        if come >= self._next or come == self._arrivals:
            self._look(come)
            self._next = -(-(len(run.timeline) + 1) * self._arrivals // SLICES)

    def _count_refused(self, placed: Placed) -> None:
        run, reason = self.run, lack(self._cluster, placed.uid, placed.pod)
        run.refused += placed.size
        run.refused_pods += 1
        pods, size = run.lacks.get(reason, (0, 0))
        run.lacks[reason] = pods + 1, size + placed.size

    def _look(self, come: int) -> None:
        matrix = self._cluster.ledger.matrix
        free = stranded(matrix, self._common, self._cluster.cordoned)
        allocated = self.run.room - free.free
        self.run.timeline.append(Moment(come, allocated, free, self._asked, self._refused))
        self._asked = self._refused = 0
        self._progress(come / self._arrivals, f"{come} of {self._arrivals} pods")


def room_of(cluster: SimulatedCluster) -> int:
    """Returns what can be granted: all but cards that are sick or drained, and memory held outside grants."""
    matrix = cluster.ledger.matrix
    return int(matrix.emptied.sum())


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Describes each row: the means over all seeds, each seed, and the first seed's timeline."""
    return [
        {
            "policy": row.policy,
            "change": row.variant.name or None,
            "nodes": len(row.variant.nodes),
            "gpus": sum(len(node.gpus) for node in row.variant.nodes),
            "allocatedPercent": _rounded(row.allocated),
            "blockedPercent": _rounded(row.refused),
            "blockedPods": _rounded(row.mean(lambda each: each.refused_pods)),
            "strandedPercent": _rounded(row.stranded),
            "strandedPercentBy": {cause.value: _rounded(row.stranded_by(cause)) for cause in Cause},
            "blockedPercentBy": {reason.value: _rounded(row.refused_by(reason)) for reason in Lack},
            "blockedPodsBy": {reason.value: _rounded(row.refused_pods_by(reason)) for reason in Lack},
            "runs": [_run_json(each) for each in row.runs],
            "timeline": [_moment_json(each) for each in row.runs[0].timeline],
        }
        for row in rows
    ]


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "memory": run.room,
        "pods": run.pods,
        "asked": run.asked,
        "blocked": run.refused,
        "blockedPods": run.refused_pods,
        "allocated": round(run.allocated),
        "free": round(run.mean(lambda each: each.free.free)),
        "stranded": {cause.value: round(run.stranded_by(cause)) for cause in Cause},
    }


def _moment_json(moment: Moment) -> dict[str, Any]:
    return {
        "pods": moment.pods,
        "asked": moment.asked,
        "blocked": moment.refused,
        "allocated": moment.allocated,
        "free": moment.free.free,
        "stranded": {cause.value: round(size) for cause, size in moment.free.causes.items()},
    }


def _rounded(value: float) -> float:
    return round(value, 3)

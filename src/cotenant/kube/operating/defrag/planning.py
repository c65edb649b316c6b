"""Plans which pods to move so that room opens on GPUs, and words the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cotenant.core.gpu import GPU
from cotenant.core.units import format_bytes
from cotenant.kube.nodes.opening_mark import mark_of
from cotenant.kube.operating.defrag.state import State
from cotenant.kube.operating.defrag.wish import Wish, describe
from cotenant.kube.pods.workload import workload_of
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.defrag import MOST_MOVES, WORK, Progress, defragment
from cotenant.kube.scheduling.hole import Hole, Wanted
from cotenant.kube.scheduling.moving import Movable, Move, shares_of
from cotenant.kube.scheduling.waiting import serve

MOST_NAMED = 5
"""Pods that a reason names."""


@dataclass(frozen=True, slots=True)
class Spot:
    """GPUs of one node."""

    node: str
    gpus: tuple[GPU, ...]

    def __str__(self) -> str:
        indexes = ", ".join(str(gpu.index) for gpu in self.gpus)
        return f"GPU {indexes} of {self.node}"

    @property
    def model(self) -> str:
        """The model of all of them, without the maker's name; `GPU` if they differ."""
        models = {gpu.model.removeprefix("NVIDIA ") for gpu in self.gpus}
        return models.pop() if len(models) == 1 else "GPU"

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "gpus": [{"index": gpu.index, "uuid": gpu.uuid, "model": gpu.model} for gpu in self.gpus],
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One eviction, and where the policy places the pod that takes its place."""

    uid: str
    namespace: str
    name: str
    workload: str
    memory: int
    """Bytes that it holds in all."""
    source: Spot
    target: Spot
    budget: str = ""
    """The PodDisruptionBudget that covers it."""

    @property
    def pod(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def sentence(self) -> str:
        return f"{self.pod} ({self.workload}, {format_bytes(self.memory)}): {self.source} to {self.target}"

    def to_json(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "workload": self.workload,
            "memory": self.memory,
            "from": self.source.to_json(),
            "to": self.target.to_json(),
            "budget": self.budget or None,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do so that room opens. `state` is for scripts: `plan`; `open`: there is room already; `none`:
    no moves would open it; `nobody`: nobody waits.
    """

    state: str
    sentence: str
    wish: Wish | None = None
    hole: Hole | None = None
    opens: Spot | None = None
    steps: tuple[Step, ...] = ()
    fewest: bool = True
    """Whether no plan has fewer moves; without a plan, whether it is certain that there is none."""
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Returns the plan for people: the sentence first."""
        steps = [f"  {number}. {step.sentence}{_by(step)}" for number, step in enumerate(self.steps, 1)]
        return [self.sentence, *steps, *(f"note: {note}" for note in self.notes)]

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "sentence": self.sentence,
            "for": self.wish.pod or None if self.wish is not None else None,
            "room": self.wish.room if self.wish is not None else None,
            "opens": self.opens.to_json() if self.opens is not None else None,
            "steps": [step.to_json() for step in self.steps],
            "fewest": self.fewest,
            "notes": list(self.notes),
        }


NOBODY = Plan(
    "nobody",
    "nobody waits for a GPU that has none: say what to open, such as --whole-card or --gpu-memory 40Gi",
)


def make_plan(
    state: State, wishes: Iterable[Wish], most: int = MOST_MOVES, progress: Progress | None = None
) -> Plan:
    """Plans for the first of the wishes that moves can open room for. If there is none, says why not for the
    first of them.
    """
    first: Plan | None = None
    movable, work, hopeless = state.movable(), WORK, list[Wanted]()
    for wish in wishes:
        if any(_is_alike(wish.wanted, each) for each in hopeless):
            continue
        plan = _plan_for(state, wish, movable, most, work, progress)
        if plan.state != "none":
            return replace(plan, notes=(*plan.notes, *_others_at_work(state)))
        hopeless.append(wish.wanted)
        first, work = first or plan, max(work // 2, WORK // 16)
    found = first or NOBODY
    return replace(found, notes=(*found.notes, *_others_at_work(state)))


def _is_alike(one: Wanted, other: Wanted) -> bool:
    """Reports whether what opens room for one opens it for the other."""
    return (one.demands, one.takes) == (other.demands, other.takes) and one.eligible is other.eligible


def _others_at_work(state: State) -> list[str]:
    """Says which GPUs are drained by commands that carry out a plan, or were killed when they did."""
    notes = list[str]()
    for node in state.nodes:
        mark = mark_of(node)
        if mark is not None:
            who = "was killed: the next one puts them back" if mark.is_over(state.now) else "is at work"
            notes.append(f"GPUs of {node.metadata.name} are drained by a `plan defrag --apply` that {who}")
    return notes


def _plan_for(
    state: State, wish: Wish, movable: list[Movable], most: int, work: int, progress: Progress | None
) -> Plan:
    found = defragment(state.trial(wish.uid), wish.wanted, movable, most, work, progress)
    whom = f" for {wish.pod}" if wish.pod else ""
    if found.plan is None:
        certain = "opens" if found.fewest else "was found that opens"
        sentence = f"no plan with at most {most} moves {certain} {wish.room}{whom}"
        return Plan("none", sentence, wish, fewest=found.fewest, notes=_why_not(state, len(movable)))
    hole, moves = found.plan.hole, found.plan.moves
    cluster = state.view.cluster
    opens = spot(cluster, hole.node, hole.cards)
    room = describe(wish.wanted.demands, opens.model)
    if not moves:
        return Plan("open", f"there is {room}{whom} already: {opens}", wish, hole, opens)
    steps = tuple(_step(state, move) for move in moves)
    pods = "1 pod" if len(steps) == 1 else f"{len(steps)} pods"
    sentence = f"moving {pods} opens {room}{whom}: {opens}"
    remarks = [] if found.fewest else ["there may be a plan with fewer moves: the search was cut"]
    remarks += _who_takes_it(state, wish, moves)
    unjudged = state.specs[wish.uid].not_judged if wish.uid in state.specs else ""
    if unjudged:
        remarks.append(f"whether {wish.pod} may go there is for kube-scheduler to say: {unjudged}")
    return Plan("plan", sentence, wish, hole, opens, steps, found.fewest, tuple(remarks))


def spot(cluster: ClusterLedger, node: str, cards: Iterable[str]) -> Spot:
    named = set(cards)
    return Spot(node, tuple(gpu for gpu in cluster.gpus(node) if gpu.uuid in named))


def _step(state: State, move: Move) -> Step:
    cluster, pod = state.view.cluster, state.by_uid[move.pod.uid]
    budgets, made_by = state.covering(pod), workload_of(pod)
    return Step(
        move.pod.uid,
        pod.metadata.namespace,
        pod.metadata.name,
        f"{made_by.kind.lower()}/{made_by.name}",
        sum(share.memory for share in shares_of(move.before)),
        spot(cluster, move.source, move.left),
        spot(cluster, move.node, move.cards),
        budgets[0].name if budgets else "",
    )


def _by(step: Step) -> str:
    return f", within PodDisruptionBudget {step.budget}" if step.budget else ""


def _why_not(state: State, movable: int) -> tuple[str, ...]:
    """Says which pods on GPUs stay, grouped by the reason."""
    by_reason: dict[str, list[str]] = {}
    for uid in state.view.cluster.pods:
        pod = state.by_uid.get(uid)
        why = state.why_it_stays(pod) if pod is not None else ""
        if pod is not None and why:
            by_reason.setdefault(why, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    notes = [f"{movable} pods on GPUs may be moved; the others are counted here by what keeps them"]
    for why, pods in sorted(by_reason.items(), key=lambda each: -len(each[1]))[:MOST_NAMED]:
        more = f" and {len(pods) - MOST_NAMED} more" if len(pods) > MOST_NAMED else ""
        notes.append(f"{', '.join(sorted(pods)[:MOST_NAMED])}{more}: {why}")
    return tuple(notes if by_reason else [f"{movable} pods on GPUs may be moved, and that is not enough"])


def _who_takes_it(state: State, wish: Wish, moves: Sequence[Move]) -> list[str]:
    """Says who in line would take the room, if that is another than the pod that it is for."""
    view, trial = state.view, state.trial(wish.uid)
    for move in moves:
        trial.repeat(move)
    try:
        woken = serve(view.cluster, view.line, state.now, state.settings.line.patience).wake
    finally:
        for move in reversed(moves):
            trial.undo(move)
    new = [uid for uid in woken if uid not in view.served.wake]
    if not new or wish.uid in new:
        return []
    ahead = " ahead of it" if wish.pod else ""
    return [f"{view.name(new[0])} is in line{ahead} and would take that room"]

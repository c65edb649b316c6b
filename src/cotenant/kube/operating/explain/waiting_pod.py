"""Explains why a pod waits: node by node and GPU by GPU, its place in line, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from cotenant.core.gpu import GPU
from cotenant.core.ledger import Room
from cotenant.core.refusal import ordinal
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.kube.api.objects import Node
from cotenant.kube.operating.explain.case import Case, as_age
from cotenant.kube.operating.explain.explanation import Explanation
from cotenant.kube.operating.explain.line_view import LineView, demands_of, view_line
from cotenant.kube.operating.explain.openings import openings
from cotenant.kube.operating.status.inspect_table import remarks
from cotenant.kube.operating.status.snapshot import snapshot
from cotenant.kube.pods.eligibility import Obstacle, obstacle
from cotenant.kube.pods.requests import beside_gpus
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.scheduling.explaining import why
from cotenant.kube.scheduling.lacking import StrandedGpu, stranded_gpus
from cotenant.kube.scheduling.reasons import names_our_reason
from cotenant.kube.scheduling.scan import HOPEFUL, Verdict, scan
from cotenant.kube.scheduling.waiting import behind
from cotenant.observe.view import GpuView, NodeView, WaitingView

MOST_NODES = 20
"""Nodes that are listed for people; JSON has them all."""
MOST_STRANDED = 10
"""GPUs without CPU or memory beside them that are listed for people."""
MOST_STRANDED_JSON = 1000
"""The same, for scripts."""
SOON = 30.0
"""Seconds within which a scheduler looks at a pod that can be placed."""

_WORDS = {
    Verdict.FITS: "has room",
    Verdict.HELD: "has room, which is held for others",
    Verdict.NO_ROOM: "has no room now",
    Verdict.TOO_BIG: "has GPUs that are too small or too few, even when empty",
    Verdict.UNKNOWN_MODEL: "has no GPU of the model or UUID that is wished for",
    Verdict.NO_CARDS: "shows no GPUs",
}


@dataclass(frozen=True)
class NodeFinding:
    node: Node
    verdict: Verdict
    obstacle: Obstacle | None
    cards: Callable[[], tuple[str, ...]]
    """One text for each GPU, worked out only where it is shown."""

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def sentence(self) -> str:
        words = f"{self.name} {_WORDS[self.verdict]}"
        return f"{words}; it {self.obstacle.found}" if self.obstacle else words

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.name,
            "verdict": self.verdict.name.lower().replace("_", "-"),
            "obstacle": self.obstacle.kind if self.obstacle else None,
            "sentence": self.sentence,
            "gpus": list(self.cards()),
        }


def explain_waiting(case: Case) -> Explanation:
    """Explains a pod that asks for GPU and that no scheduler has bound."""
    view = view_line(case.nodes, case.pods, case.settings, case.now, case.placements, case.pod)
    return _Waiting(case, view, snapshot(case.nodes, case.pods).nodes).explanation()


def explain_briefly(
    case: Case, view: LineView, seen: Sequence[NodeView], known: Explanation | None = None
) -> WaitingView:
    """Explains a pod of the line in one sentence. `known`: what keeps it, where that is not the GPUs."""
    return _Waiting(case, view, seen).brief(known)


class _Waiting:
    def __init__(self, case: Case, view: LineView, seen: Sequence[NodeView]) -> None:
        self.case, self.view = case, view
        self.seen = [each for each in seen if each.gpus]
        self.uid = case.pod.metadata.uid
        self.demands = demands_of(case.pod, case.settings.dialects)
        self.requests = beside_gpus(case.pod)
        self.place = self.view.place(self.uid)

    def brief(self, known: Explanation | None) -> WaitingView:
        code, sentence = (known.reason, known.sentence) if known is not None else self._reason(brief=True)[:2]
        assert self.place is not None  # noqa: S101 - only pods in line are explained briefly
        _, held = self.view.served.holds.get(self.uid, ("", ()))
        meta = self.case.pod.metadata
        return WaitingView(
            id=self.uid,
            name=meta.name,
            namespace=meta.namespace,
            place=self.place,
            waited_seconds=self.case.waited,
            reason=sentence,
            code=code,
            held=tuple(held),
        )

    def explanation(self) -> Explanation:
        reason, sentence, step = self._reason()
        shown = sorted(self.findings, key=self._hope)[:MOST_NODES]
        listed = [
            text for each in shown for text in (each.sentence, *(f"    {card}" for card in each.cards()))
        ]
        if len(self.findings) > MOST_NODES:
            listed.append(f"and {len(self.findings) - MOST_NODES} more nodes: -o json has them all")
        stranded = [str(each) for each in self.stranded[:MOST_STRANDED]]
        if len(self.stranded) > MOST_STRANDED:
            stranded.append(f"and {len(self.stranded) - MOST_STRANDED} more: -o json lists them")
        return Explanation(
            self.case.target,
            "waiting",
            reason,
            sentence,
            step,
            (
                ("it would fit", self.openings),
                ("GPUs with room for it that are stranded", tuple(stranded)),
                ("line", (self._line(), *self._ahead())),
                ("nodes", tuple(listed)),
                ("kube-scheduler says", (self.case.scheduler_says,) if self.case.scheduler_says else ()),
                ("newest warning", (self.case.warning,) if self.case.warning else ()),
            ),
            {
                "place": self.place,
                "line": len(self.view.line),
                "waited": round(self.case.waited),
                "openings": list(self.openings),
                "stranded": [each.to_json() for each in self.stranded[:MOST_STRANDED_JSON]],
                "nodes": [each.to_json() for each in self.findings],
                "scheduler": self.case.scheduler_says,
                "warning": self.case.warning,
            },
        )

    def _line(self) -> str:
        waited_ = as_age(self.case.waited)
        if self.place is None:
            return f"not in line, for {waited_}: it does not wait for GPUs, so no GPU is held for it"
        return f"{ordinal(self.place)} of {len(self.view.line)} in line, for {waited_}"

    def _ahead(self) -> tuple[str, ...]:
        told = []
        for uid, (node, cards) in self.view.served.holds.items():
            if uid != self.uid:
                gpus = {gpu.uuid: gpu for gpu in self.view.cluster.ledger(node).gpus}
                which = ", ".join(str(gpus[card]) for card in cards if card in gpus)
                told.append(f"{which} of {node} held for {self._line_name(uid)}")
        return tuple(told)

    @cached_property
    def findings(self) -> tuple[NodeFinding, ...]:
        """Nodes with GPUs, by name."""
        verdicts = self._verdicts([each.name for each in self.seen])
        nodes = {node.metadata.name: node for node in self.case.nodes}
        return tuple(
            NodeFinding(
                nodes[each.name],
                verdict,
                obstacle(self.case.placement, nodes[each.name]),
                partial(self._cards, each),
            )
            for each, verdict in zip(self.seen, verdicts, strict=True)
        )

    def _verdicts(self, names_: Sequence[str]) -> list[Verdict]:
        found = scan(self.view.cluster, self.uid, self.demands, self.view.cluster.rows(names_))
        return [Verdict(each) for each in found.tolist()]

    def _cards(self, node: NodeView) -> tuple[str, ...]:
        return tuple(self._card(card) for card in node.gpus)

    def _card(self, card: GpuView) -> str:
        room = self.view.cluster.ledger(card.node).room_on(card.gpu.uuid)
        parts = [f"GPU {card.gpu.index}: {_free(room)} of {format_bytes(card.gpu.memory)}"]
        if card.shares:
            parts.append(
                ", ".join(f"{each} {_amount(each.memory, whole=each.whole)}" for each in card.shares)
            )
        if card.outside:
            parts.append(f"{format_bytes(card.outside)} in use outside any grant")
        parts += remarks(card)
        holder = self.view.holder_of(card.node, card.gpu.uuid)
        if holder is not None:
            parts.append("held for this pod" if holder == self.uid else f"held for {self.view.name(holder)}")
        if not all(demand.accepts(card.gpu) for demand in self.demands):
            parts.append(f"{card.gpu.model}, not what is wished for")
        return "; ".join(parts)

    def _hope(self, finding: NodeFinding) -> tuple[bool, int, str]:
        return finding.obstacle is not None, HOPEFUL.index(finding.verdict), finding.name

    @cached_property
    def _allowed(self) -> list[NodeFinding]:
        return [each for each in self.findings if each.obstacle is None]

    @cached_property
    def stranded(self) -> tuple[StrandedGpu, ...]:
        """GPUs with room for it on nodes that it may go to, and that have too little else left for it; those
        with most free first.
        """
        found = [
            gpu
            for each in self._allowed
            if each.verdict is Verdict.FITS
            for gpu in stranded_gpus(self.view.cluster, each.name, self.demands, self.requests)
        ]
        return tuple(sorted(found, key=lambda gpu: -gpu.free))

    @cached_property
    def _roomy(self) -> tuple[str, ...]:
        """Nodes with room for it, on their GPUs and beside them."""
        blocked = {gpu.node for gpu in self.stranded}
        fit = (each.name for each in self._allowed if each.verdict is Verdict.FITS)
        return tuple(name for name in fit if name not in blocked)

    @cached_property
    def openings(self) -> tuple[str, ...]:
        allowed = [each.node for each in self._allowed if each.verdict in {Verdict.NO_ROOM, Verdict.HELD}]
        pod = self.case.pod
        after = behind(self.view.line, pod.spec.priority, created_at(pod, self.case.now), pod.metadata.uid)
        return openings(self.view.cluster, self.uid, self.demands, allowed, self.case.pods, after)

    def _reason(self, *, brief: bool = False) -> tuple[str, str, str]:
        """Returns a stable word, a sentence and the next step."""
        all_verdicts = {each.verdict for each in self.findings}
        if not self.findings:
            return (
                "no-cards",
                self._why(),
                "see whether Cotenant's agent runs on the GPU nodes: cotenant doctor --cluster",
            )
        if all_verdicts <= {Verdict.UNKNOWN_MODEL, Verdict.NO_CARDS}:
            return "model-missing", self._why(), self._other_model()
        if all_verdicts <= {Verdict.TOO_BIG, Verdict.UNKNOWN_MODEL, Verdict.NO_CARDS}:
            return (
                "too-big",
                self._why(),
                "change the demand and create the pod anew: as it is, it can never be placed",
            )
        allowed = {each.verdict for each in self._allowed}
        if self.place is None and self._allowed:
            return self._kept_by_others()
        if self._roomy:
            return self._fits(self._roomy[0])
        if Verdict.HELD in allowed:
            return self._held()
        if self.stranded:
            return self._stranded()
        if Verdict.NO_ROOM in allowed:
            sentence = f"{self._why(self._allowed)}: {self._waiting_at()}"
            return "no-room", sentence, "" if brief else self._wait()
        return self._blocked()

    def _waiting_at(self) -> str:
        return f"waiting, {ordinal(self.place or 1)} in line"

    def _why(self, findings: Sequence[NodeFinding] | None = None) -> str:
        nodes = [each.name for each in (self.findings if findings is None else findings)]
        return why(self.view.cluster, self.uid, self.demands, self.view.cluster.rows(nodes))

    def _other_model(self) -> str:
        wishes = {names.GPU_MODEL: any(d.models for d in self.demands)}
        wishes[names.GPU_UUID] = any(d.uuids for d in self.demands)
        which = " and ".join(name for name, wished in wishes.items() if wished)
        return f"correct the annotation {which} and create the pod anew, or add a node with such a GPU"

    def _wait(self) -> str:
        ends = [each for each in self.openings if each.startswith("when ")]
        if ends:
            return f"wait: it is placed by itself {ends[0]}"
        ahead = [self.view.name(uid) for uid in self.view.served.holds if uid != self.uid]
        wait = f"wait: {ahead[0]} is served first" if ahead else "wait: it is placed as soon as there is room"
        return f"{wait}; it would fit {self.openings[0]}" if self.openings else wait

    def _held(self) -> tuple[str, str, str]:
        finding = next(each for each in self._allowed if each.verdict is Verdict.HELD)
        gpu, holder = self._held_card(finding.name)
        asked = self._why(self._allowed).partition(" asked,")[0]
        sentence = (
            f"{asked} asked, {gpu} of {finding.name} has room but is held for {self._line_name(holder)}: "
            f"{self._waiting_at()}"
        )
        first = self.view.pods[holder].metadata
        step = (
            f"wait until {self.view.name(holder)} runs, or give this pod a higher priority; "
            f"what the other waits for tells: cotenant explain -n {first.namespace} {first.name}"
        )
        return "held", sentence, step

    def _held_card(self, node: str) -> tuple[GPU, str]:
        """Returns a held GPU, one with room for the pod if there is one, and the pod for which it is held."""
        ledger = self.view.cluster.ledger(node)
        held = [
            (gpu, holder)
            for gpu in ledger.gpus
            if (holder := self.view.holder_of(node, gpu.uuid)) is not None and holder != self.uid
        ]
        roomy = [each for each in held if any(ledger.room_on(each[0].uuid).fits(one) for one in self.demands)]
        return (roomy or held)[0]

    def _line_name(self, uid: str) -> str:
        waiting = next(each for each in self.view.line if each.uid == uid)
        place, waited = ordinal(self.view.place(uid) or 1), as_age(self.case.now - waiting.since)
        return f"{self.view.name(uid)}, {place} in line, which has waited {waited}"

    def _stranded(self) -> tuple[str, str, str]:
        first = self.stranded[0]
        node, others = first.node, len({each.node for each in self.stranded}) - 1
        more = f" (and so on {others} more node{'s' if others > 1 else ''})" if others else ""
        step = (
            f"wait until pods of {node} end, or move those without GPU elsewhere: kubectl get pods -A "
            f"--field-selector spec.nodeName={node}; `cotenant doctor --cluster` says what such pods strand"
        )
        return "stranded", f"{first}{more}: {self._waiting_at()}", step

    def _fits(self, node: str) -> tuple[str, str, str]:
        says = self.case.scheduler_says
        scheduler = self.case.pod.spec.scheduler_name or "default-scheduler"
        if self.uid not in self.view.served.wake:
            first = next(
                (self.view.name(uid) for uid, at in self.view.served.places.items() if at[0] == node),
                "others",
            )
            return (
                "ahead",
                f"the room on {node} goes to {first}, ahead of it: {self._waiting_at()}",
                "wait: it is placed as soon as there is room for it too",
            )
        if says and not names_our_reason(says):
            return self._kept_by_others()
        if not says and self.case.waited > SOON:
            waited = as_age(self.case.waited)
            return (
                "no-scheduler",
                f"there is room on {node}, but the scheduler {scheduler} has not looked at it for {waited}",
                f"see whether a scheduler of the name {scheduler} runs: cotenant doctor --cluster",
            )
        return "being-placed", f"there is room on {node}: it is about to be placed", "look again in a moment"

    def _kept_by_others(self) -> tuple[str, str, str]:
        """Explains a pod for which kube-scheduler has other reasons than room on GPUs."""
        says = self.case.scheduler_says
        room = f"there is room on the GPUs of {self._roomy[0]}, and " if self._roomy else ""
        if self.stranded and not room:
            room = f"{self.stranded[0]}; "
        sentence = f"{room}kube-scheduler has another reason: {says}"
        return "not-the-gpus", sentence, self._other_reason(says)

    def _other_reason(self, says: str) -> str:
        if names.GPU_SLOT in says:
            return "the nodes' slots are used up: end pods, or raise agent.clients_per_gpu in the settings"
        if names.DOMAIN in says:
            return (
                "look again in a moment; if it stays, cotenant doctor --cluster compares capacity with GPUs"
            )
        return f"kubectl describe pod {self.case.flags}"

    def _blocked(self) -> tuple[str, str, str]:
        """Explains a pod for which the only GPUs are on nodes that it may not go to."""
        best = min((each for each in self.findings if each.obstacle), key=self._hope)
        assert best.obstacle is not None  # noqa: S101 - of those it was chosen
        same = [
            each
            for each in self.findings
            if each is not best and each.obstacle and each.obstacle.kind == best.obstacle.kind
        ]
        more = f" (and so for {len(same)} more)" if same else ""
        has = {Verdict.FITS: "has the room", Verdict.HELD: "has the room"}.get(best.verdict, "has the GPUs")
        sentence = f"node {best.name} {has}, but it {best.obstacle.found}{more}"
        return best.obstacle.kind, sentence, best.obstacle.step


def _free(room: Room) -> str:
    return "none free" if not room.free else f"{format_bytes(room.free)} free"


def _amount(memory: int, *, whole: bool) -> str:
    return "whole" if whole else format_bytes(memory)

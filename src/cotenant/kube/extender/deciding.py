"""Answers filter, prioritize and preempt from the ledger in memory, without waiting for anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.store import Store
from cotenant.kube.extender import messages
from cotenant.kube.extender.bind_order import BindOrder
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.pods.requests import beside_gpus, fits_otherwise
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.matrix import Rows
from cotenant.kube.scheduling.ranking import best_named, by_place, scores, scores_without_gpu
from cotenant.kube.scheduling.reasons import BEING_BOUND, REASONS
from cotenant.kube.scheduling.scan import Verdict, scan
from cotenant.kube.scheduling.tenants import LEAVES
from cotenant.kube.scheduling.victims import Candidate, Tries, victims

BAD_DEMAND = "GPU demand that cannot be understood"
NEVER = frozenset({Verdict.NO_CARDS, Verdict.UNKNOWN_MODEL, Verdict.TOO_BIG})
"""Verdicts where evicting others does not help."""
_FITS = int(Verdict.FITS)
_FAILED = {int(verdict): reason for verdict, reason in REASONS.items() if verdict not in NEVER}
_NEVER = {int(verdict): REASONS[verdict] for verdict in NEVER}


@runtime_checkable
class ExtenderLine(Protocol):
    """The line, as far as answers to kube-scheduler depend on it and change it."""

    def add(self, pod: Pod, demands: tuple[Demand, ...], rows: Rows) -> None:
        """Puts a pod in line that was refused on these nodes."""

    def refuse(self, pod: Pod, why_: str) -> None:
        """Reports that the pod can never be served."""

    def asked(self, uid: str) -> None:
        """Notes that kube-scheduler tries the pod, and that our answer named a node for it."""

    def is_pressing(self, uid: str) -> bool:
        """Reports whether others are being evicted for the pod already."""

    def behind(self, pod: Pod) -> frozenset[str]:
        """Returns the UIDs of those who come after it in line, and for whom GPUs are held."""

    def leave_to_scheduler(self, uid: str) -> None:
        """Notes that kube-scheduler evicts others for the pod."""


@dataclass
class Decider:
    """Answers from the ledger as it is now. A pod that gets no node is put in line."""

    cluster: ClusterLedger
    pods: Store[Pod]
    nodes: Store[Node]
    dialects: Dialects
    line: ExtenderLine
    _asked: tuple[tuple[str, str], tuple[Demand, ...]] = (("", ""), ())

    def __post_init__(self) -> None:
        self.bind_order = BindOrder(self.cluster)
        self._keep = gpu_fields(self.dialects).keep
        """Cuts a pod to what the line needs: kube-scheduler sends all of it, and the line keeps it."""

    def filter(self, args: messages.Args) -> bytes:
        return self._filter(args, all_that_fit=True)

    def choose(self, args: messages.Args) -> bytes:
        """Answers like filter, but of the nodes where the pod fits with the best alone: the one to which
        prioritize gives most. kube-scheduler takes a single node without scoring it. If the pod fits nowhere,
        the answer is that of filter, on which preemption depends.
        """
        return self._filter(args, all_that_fit=False)

    def _filter(self, args: messages.Args, *, all_that_fit: bool) -> bytes:
        names: Sequence[str] = args.names
        pod = args.pod
        try:
            demands = self._demands(pod)
        except BadInput as error:
            self.line.refuse(self._keep(pod), str(error))
            return messages.filtered([], {}, dict.fromkeys(names, BAD_DEMAND))
        if not demands:
            return messages.filtered(names, {}, {})
        charged = self.cluster.charged(pod.metadata.uid)
        if charged is not None:
            self.line.asked(pod.metadata.uid)
            fitting = [name for name in names if name == charged[0]]
            others = {name: BEING_BOUND for name in names if name != charged[0]}
            return messages.filtered(fitting, others, {})
        if not all_that_fit:
            best = best_named(self.cluster, pod.metadata.uid, demands, names, beside_gpus(pod))
            if best is not None:
                self.bind_order.chosen(pod.metadata.uid)
                self.line.asked(pod.metadata.uid)
                return messages.filtered([best], {}, {})
        names, rows = self.cluster.located(names)
        verdicts = scan(self.cluster, pod.metadata.uid, demands, rows)
        if names and not verdicts.any():
            self.line.asked(pod.metadata.uid)
            return messages.filtered(names, {}, {})
        fitting, failed, never = _sorted_out(names, verdicts.tolist())
        if fitting:
            self.line.asked(pod.metadata.uid)
        else:
            self.line.add(self._keep(pod), demands, rows)
        return messages.filtered(fitting, failed, never)

    def prioritize(self, args: messages.Args) -> bytes:
        names: Sequence[str] = args.names
        demands = self._demands(args.pod)
        if not names or not demands:
            return messages.prioritized(names, {})
        names, rows = self.cluster.located(names)
        found = scores(self.cluster, args.pod.metadata.uid, demands, rows, beside_gpus(args.pod))
        return messages.prioritized(names, by_place(found))

    def prioritize_without_gpu(self, args: messages.Args) -> bytes:
        """Keeps pods without GPU away from GPUs, where there is a choice. kube-scheduler asks it about GPU
        pods too, for which it says nothing.
        """
        names: Sequence[str] = args.names
        if not names or self._demands(args.pod):
            return messages.prioritized(names, {})
        names, rows = self.cluster.located(names)
        found = scores_without_gpu(self.cluster, rows, beside_gpus(args.pod))
        return messages.prioritized(names, by_place(found))

    def preempt(self, args: messages.PreemptArgs) -> bytes:
        """Keeps only nodes where evictions make room on the GPUs, each with the exact victims. Keeps
        no node while others are being evicted for the pod already. All nodes share one limit of work: if the
        search is long, the last of them are left out.
        """
        if self.line.is_pressing(args.pod.metadata.uid):
            return messages.preempted({})
        demands = self._demands(args.pod)
        proposed = args.proposed()
        if not demands:
            return messages.preempted(proposed)
        there: dict[str, list[Pod]] = {node: [] for node in proposed}
        for pod in self.pods:
            if pod.spec.node_name in there:
                there[pod.spec.node_name].append(pod)
        behind, tries = self.line.behind(args.pod), Tries()
        kept = {
            node: messages.MetaVictims(tuple(map(messages.MetaPod, uids)), each.violations)
            for node, each in proposed.items()
            if (
                uids := self._victims(
                    args.pod, demands, node, [pod.uid for pod in each.pods or ()], there[node], behind, tries
                )
            )
        }
        if kept:
            self.line.leave_to_scheduler(args.pod.metadata.uid)
        return messages.preempted(kept)

    def _demands(self, pod: Pod) -> tuple[Demand, ...]:
        """Returns the pod's demands; kept for a moment, since kube-scheduler asks about one pod several times
        in a row.
        """
        state = pod.metadata.uid, pod.metadata.resource_version
        if not all(state) or state != self._asked[0]:
            self._asked = state, demand_of(pod, self.dialects).demands
        return self._asked[1]

    def _victims(
        self,
        pod: Pod,
        demands: Sequence[Demand],
        name: str,
        proposed: Sequence[str],
        there: Sequence[Pod],
        behind: Collection[str],
        tries: Tries,
    ) -> tuple[str, ...]:
        """Returns UIDs; empty if nothing helps or room comes by itself: kube-scheduler wants at least one.

        Only pods that are bound to the node are among them. One that is only being bound is charged already,
        but kube-scheduler does not find it on the node, and would give up evicting anybody.
        """
        charged = [self.pods.get(uid) for uid in self.cluster.pods_on(name)]
        bound = [each for each in charged if each is not None and each.spec.node_name == name]
        lower = [each for each in bound if each.spec.priority < pod.spec.priority]
        candidates = [_candidate(each) for each in lower]
        needed = victims(self.cluster, name, pod.metadata.uid, demands, candidates, behind, tries=tries)
        if needed is None:
            return ()
        leaving = {each.metadata.uid for each in lower if each.metadata.deletion_timestamp is not None}
        evicted = [uid for uid in needed if uid not in leaving]
        # Those without a charge were proposed for other reasons: CPU, memory, ports.
        evicted += [uid for uid in proposed if self.cluster.charged(uid) is None]
        node = self.nodes.named(name)
        for uid in (uid for uid in proposed if uid not in evicted and uid not in leaving):
            gone = {*evicted, *leaving}
            if node is None or fits_otherwise(pod, node, [p for p in there if p.metadata.uid not in gone]):
                break
            evicted.append(uid)
        return tuple(evicted)


def _candidate(pod: Pod) -> Candidate:
    """Makes a candidate. A pod that terminates already costs nothing: it sorts before all others."""
    leaving = pod.metadata.deletion_timestamp is not None
    return Candidate(pod.metadata.uid, LEAVES if leaving else pod.spec.priority, created_at(pod, 0.0))


def _sorted_out(
    names: Sequence[str], verdicts: Sequence[int]
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    fitting, failed, never = list[str](), dict[str, str](), dict[str, str]()
    for name, verdict in zip(names, verdicts, strict=True):
        if verdict == _FITS:
            fitting.append(name)
        elif verdict in _FAILED:
            failed[name] = _FAILED[verdict]
        else:
            never[name] = _NEVER[verdict]
    return fitting, failed, never

"""Reads the cluster for a plan, and builds the ledger on which moves are tried."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import cached_property

from msgspec.structs import replace

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import POD_DISRUPTION_BUDGETS, PODS
from cotenant.kube.nodes.gpus import drained_of, write_drained
from cotenant.kube.operating.defrag.budgets import Budget, budgets_of, read_budget
from cotenant.kube.operating.defrag.movable import PlacedPod, PlacementSpec, why_it_stays
from cotenant.kube.operating.explain.line_view import EligibleByPlacement, LineView, view_line
from cotenant.kube.operating.installed import find_installed
from cotenant.kube.operating.statistics import read_ended, teach
from cotenant.kube.operating.status.reading import read_all
from cotenant.kube.pods.demand import demand_of, has_ended
from cotenant.kube.pods.eligibility import takes_pods
from cotenant.kube.pods.requests import allocatable, beside_gpus, pod_requests
from cotenant.kube.pods.slots import PodDemand
from cotenant.kube.pods.unschedulable import created_at
from cotenant.kube.scheduling.eligible import Eligible, only
from cotenant.kube.scheduling.moving import Cards, Movable, Trial
from cotenant.kube.scheduling.node_sums import NodeSums
from cotenant.kube.scheduling.pod_statistics import EndedPods
from cotenant.kube.settings import Settings

_PLACED = PODS.read_as(PlacedPod)
_NOTHING = PlacementSpec()


@dataclass(frozen=True)
class State:
    """The cluster at one moment."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    specs: Mapping[str, PlacementSpec]
    """By UID."""
    budgets: tuple[Budget, ...]
    settings: Settings
    now: float
    """Unix time."""
    ended: EndedPods = field(default_factory=EndedPods)
    """What the leader kept of pods that have ended."""

    def without_drains(self, closed: Mapping[str, Cards]) -> State:
        """Returns the state as if these GPUs, by node, were not drained."""
        nodes = [_undrained(node, closed.get(node.metadata.name, frozenset())) for node in self.nodes]
        return replace_fields(self, nodes=tuple(nodes))

    @cached_property
    def by_uid(self) -> dict[str, Pod]:
        return {pod.metadata.uid: pod for pod in self.pods}

    @cached_property
    def view(self) -> LineView:
        """The ledger, what it has learned, and the line."""
        waiting = (pod.metadata.uid for pod in self.pods if not pod.spec.node_name)
        placements = {uid: self.specs[uid].plain for uid in waiting if uid in self.specs}
        view = view_line(self.nodes, self.pods, self.settings, self.now, placements)
        teach(view.cluster, self.ended, self.pods, self.settings.dialects)
        return view

    def demand_of(self, pod: Pod) -> PodDemand:
        """Returns what a pod asks for; nothing if its demand is not valid. What the server wrote into it says
        nothing about that, and is different in every pod: without it, pods of one workload are alike.
        """
        written = {
            key: text for key, text in pod.metadata.annotations.items() if not names.only_server_writes(key)
        }
        plain = replace(pod, metadata=replace(pod.metadata, annotations=written))
        try:
            return demand_of(plain, self.settings.dialects)
        except BadInput:
            return PodDemand()

    @cached_property
    def eligible(self) -> EligibleByPlacement:
        return EligibleByPlacement(self.view.cluster, self.nodes)

    def trial(self, without: str = "") -> Trial:
        """Returns the ledger to try moves on, for one trial at a time. `without`: the pod in line
        (UID) that the room is for: nothing is held for it meanwhile.
        """
        cluster = self.view.cluster
        for uid, (node, cards) in self.view.served.holds.items():
            cluster.hold(uid, node, cards)
        cluster.unhold(without)
        with_gpus = set(cluster.nodes)
        has = {
            node.metadata.name: allocatable(node)
            for node in self.nodes
            if node.metadata.name in with_gpus and node.status.allocatable
        }
        taken = (
            (pod.spec.node_name, pod_requests(pod))
            for pod in self.pods
            if pod.spec.node_name in has and not has_ended(pod)
        )
        return Trial(cluster, NodeSums(has, taken), [each for each in self.view.line if each.uid != without])

    def covering(self, pod: Pod) -> list[Budget]:
        """Returns the PodDisruptionBudgets that cover a pod."""
        return budgets_of(self.budgets, pod.metadata.namespace, pod.metadata.labels)

    def why_it_stays(self, pod: Pod, awaited: Collection[Budget] = ()) -> str:
        """Continues a sentence after the pod's name; empty if it may be moved. `awaited`: budgets that will
        allow evictions again when pods that take the place of evicted ones are Ready.
        """
        spec, known = self.specs.get(pod.metadata.uid, _NOTHING), {str(each) for each in awaited}
        budgets = [
            replace_fields(each, allowed=1) if str(each) in known else each for each in self.covering(pod)
        ]
        return why_it_stays(pod, spec, budgets)

    def movable(self, awaited: Collection[Budget] = ()) -> list[Movable]:
        """Returns the pods on GPUs that may be moved."""
        found = list[Movable]()
        for uid in self.view.cluster.pods:
            pod = self.by_uid.get(uid)
            slots = self.demand_of(pod).slots if pod is not None else ()
            if pod is None or not slots or self.why_it_stays(pod, awaited):
                continue
            found.append(
                Movable(
                    uid,
                    slots,
                    beside_gpus(pod),
                    pod_requests(pod),
                    self.eligible_of(uid),
                    pod.spec.priority,
                    created_at(pod, self.now),
                )
            )
        return found

    def eligible_of(self, uid: str) -> Eligible:
        """Returns the nodes to which a pod may go, GPUs and requests aside."""
        return self.eligible.of(self.specs.get(uid, _NOTHING).plain)

    def open_nodes(self) -> Eligible:
        """Returns the nodes that take pods, for room that no pod has asked for."""
        cluster = self.view.cluster
        return only(cluster, cluster.rows([each.metadata.name for each in self.nodes if takes_pods(each)]))


async def read_state(client: Client, now: float) -> State:
    """Reads all nodes, pods and PodDisruptionBudgets, and the settings of the installation."""
    seen, placed, budgets, installed = await asyncio.gather(
        read_all(client),
        client.list(_PLACED),
        client.list(POD_DISRUPTION_BUDGETS),
        find_installed(client),
    )
    ended, _ = await read_ended(client, installed.namespace)
    return State(
        seen.nodes,
        seen.pods,
        {each.metadata.uid: each.spec for each in placed.items},
        tuple(read_budget(each) for each in budgets.items),
        installed.settings,
        now,
        ended,
    )


def _undrained(node: Node, cards: Cards) -> Node:
    drained = drained_of(node)
    if not drained & cards:
        return node
    annotations = {
        **node.metadata.annotations,
        names.DRAINED: write_drained(sorted(drained - cards)) or "",
    }
    return replace(node, metadata=replace(node.metadata, annotations=annotations))

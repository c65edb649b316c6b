"""Gathers the view of a cluster from what nodes and pods say of themselves: their annotations.

This is not the server's ledger but a second count of the same things. It needs no server, and where the two
differ, something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.core.loss import PLENTY, Spare
from cotenant.dialects import names
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.nodes.gpus import NONE, GpusUnreadable, drained_of, read_gpus
from cotenant.kube.pods.demand import has_ended, holds_slot, readable_grant
from cotenant.kube.pods.limit_held import limit_held
from cotenant.kube.pods.pod_view import pod_view
from cotenant.kube.pods.requests import spare_of_node
from cotenant.kube.pods.shares import shares_of
from cotenant.observe.view import GpuView, GrantView, LearnedView, NodeView, PodView, ShareView, View

_OnGpu = dict[tuple[str, str], list[ShareView]]
"""By node and UUID."""


def snapshot(nodes: Iterable[Node], pods: Iterable[Pod], *, all_pods: bool = False) -> View:
    """Nodes by name; those that report no GPUs are left out. A grant that is not valid holds nothing here:
    the doctor reports it. `all_pods`: also list the pods without GPU on these nodes, and those that wait.
    """
    grants: list[GrantView] = []
    on_gpu: _OnGpu = {}
    pods = tuple(pods)
    for pod in pods:
        grant = readable_grant(pod)
        if grant is not None:
            meta, shares = pod.metadata, shares_of(pod, grant)
            held = limit_held(pod)
            asked, holds = (held.asked, held.holds) if held is not None else ("", "")
            grants.append(
                GrantView(meta.uid, meta.name, shares, meta.namespace, enforcer=holds, enforcer_asked=asked)
            )
            for share in shares:
                on_gpu.setdefault((pod.spec.node_name, share.uuid), []).append(share)
    seen = (_node(node, on_gpu) for node in nodes if names.GPUS in node.metadata.annotations)
    view = View(tuple(sorted(seen, key=lambda each: each.name)), tuple(grants))
    return _with_pods(view, pods) if all_pods else view


def _with_pods(view: View, pods: Iterable[Pod]) -> View:
    """Adds the pods that have not ended, by namespace and name."""
    on: dict[str, list[PodView]] = {each.name: [] for each in view.nodes}
    pending: list[PodView] = []
    for pod in sorted(pods, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        if has_ended(pod):
            continue
        if pod.spec.node_name in on:
            on[pod.spec.node_name].append(pod_view(pod))
        elif not pod.spec.node_name and holds_slot(pod):
            pending.append(pod_view(pod))
    nodes = tuple(replace(each, pods=tuple(on[each.name])) for each in view.nodes)
    return replace(view, nodes=nodes, pending=tuple(pending))


def _node(node: Node, on_gpu: _OnGpu) -> NodeView:
    trouble = None
    try:
        told = read_gpus(node.metadata.annotations.get(names.GPUS))
    except GpusUnreadable as error:
        told, trouble = NONE, str(error)
    name, drained = node.metadata.name, drained_of(node)
    gpus = [
        GpuView(
            card.gpu(drained=card.uuid in drained),
            node=name,
            problem=card.problem,
            drained=card.uuid in drained,
            outside=card.outside,
            shares=tuple(sorted(on_gpu.get((name, card.uuid), ()), key=str)),
        )
        for card in told.cards
    ]
    return NodeView(
        name,
        tuple(sorted(gpus, key=lambda each: (each.gpu.index, each.gpu.uuid))),
        address=next(
            (each.address for each in node.status.addresses if each.type == "InternalIP"), "unknown"
        ),
        agent=told.agent,
        enforcer=told.enforcer,
        mps=told.mps,
        resources=told.resources,
        capacity=node.status.capacity,
        has=spare_of_node(node),
        cordoned=node.spec.unschedulable,
        trouble=trouble,
    )


def document(
    nodes: Sequence[NodeView],
    unit: str,
    pending: Sequence[PodView] = (),
    learned: LearnedView | None = None,
) -> dict[str, Any]:
    """Makes the whole document of `status -o json`, which `cotenant simulate placement` reads."""
    shown = [node_json(each) for each in nodes]
    return {
        "unit": unit,
        "memory": sum(each["memory"] for each in shown),
        "granted": sum(each["granted"] for each in shown),
        "nodes": shown,
        "pending": [pod_json(each) for each in pending],
        "learned": None if learned is None else learned_json(learned),
    }


def node_json(node: NodeView) -> dict[str, Any]:
    """With the names that scripts read: they never change."""
    return {
        "name": node.name,
        "address": node.address,
        "agent": node.agent,
        "enforcer": node.enforcer,
        "mps": node.mps,
        "trouble": node.trouble,
        "memory": sum(each.gpu.memory for each in node.gpus),
        "granted": sum(each.granted for each in node.gpus),
        "gpus": [_gpu_json(each) for each in node.gpus],
        "allocatable": _spare_json(node.has),
        "unschedulable": node.cordoned,
        "pods": [pod_json(each) for each in node.pods],
    }


def _spare_json(has: Spare) -> dict[str, int]:
    """CPU in thousandths, bytes of the host's memory, places for pods; without what is not known."""
    amounts = {"cpu": has.cpu, "memory": has.memory, "pods": has.pods}
    return {name: amount for name, amount in amounts.items() if amount < PLENTY}


def pod_json(pod: PodView) -> dict[str, Any]:
    """A pod with or without GPU: all that its placement depends on and a node's figures do not show."""
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.id,
        "workload": pod.workload,
        "version": pod.version,
        "pinned": pod.pinned,
        "created": None if pod.created is None else timestamp(pod.created),
        "cpu": pod.cpu,
        "memory": pod.memory,
        "demands": [{"container": container, **demand.to_json()} for container, demand in pod.demands],
    }


def _gpu_json(view: GpuView) -> dict[str, Any]:
    return {
        "index": view.gpu.index,
        "uuid": view.gpu.uuid,
        "model": view.gpu.model,
        "memory": view.gpu.memory,
        "shared": view.gpu.shared,
        "granted": view.granted,
        "outside": view.outside,
        "problem": view.problem,
        "drained": view.drained,
        "pods": [share_json(share) for share in view.shares],
    }


def share_json(share: ShareView) -> dict[str, Any]:
    return {
        "namespace": share.namespace,
        "pod": share.name,
        "uid": share.grant,
        "memory": share.memory,
        "whole": share.whole,
        **({"compute": share.compute} if share.compute is not None else {}),
        **({"idleSince": timestamp(share.idle_since)} if share.idle_since is not None else {}),
        **({"enforcerAsked": share.enforcer_asked, "enforcer": share.enforcer} if share.enforcer else {}),
        **({"limitProblem": share.limit_problem} if share.limit_problem else {}),
    }


def learned_json(learned: LearnedView) -> dict[str, Any]:
    """What the policy judges placements by. Shares are of the GPU memory that is asked for."""
    return {
        "pods": learned.pods,
        "podsWithoutGpu": learned.without_gpu,
        "since": None if learned.since is None else timestamp(learned.since),
        "typical": [
            {
                "memory": each.memory,
                "percent": each.percent,
                "gpus": each.gpus,
                "whole": each.whole,
                "models": list(each.models),
                "cpuMilli": each.cpu,
                "hostMemory": each.host_memory,
                "pods": each.pods,
                "share": round(each.share, 6),
                "prior": each.prior,
            }
            for each in learned.typical
        ],
        "models": dict(learned.models),
        "trouble": learned.trouble,
    }


class NoSuchNode(CotenantError):
    """There is no node of this name, or it has no GPUs."""


def one_node(seen: Sequence[NodeView], name: str, nodes: Iterable[Node]) -> tuple[NodeView, ...]:
    """The node of that name alone."""
    found = tuple(each for each in seen if each.name == name and each.gpus)
    if found:
        return found
    if all(node.metadata.name != name for node in nodes):
        there = ", ".join(each.name for each in seen) or "none"
        raise NoSuchNode(f"no node {name}: nodes with GPUs are {there}")
    raise NoSuchNode(
        f"node {name} shows no GPU: Cotenant's agent must run there: "
        f"kubectl get pods -A -o wide --field-selector spec.nodeName={name}"
    )

"""Finds for whom room is to be opened: a pod by name, the first in line that cannot start, or a demand."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes
from cotenant.kube.api.objects import Pod
from cotenant.kube.operating.defrag.state import State
from cotenant.kube.operating.explain.line_view import demands_of
from cotenant.kube.pods.requests import beside_gpus, pod_requests
from cotenant.kube.pods.unschedulable import may_be_bound
from cotenant.kube.scheduling.hole import Wanted

MOST_WAITING = 8
"""Pods in line for which a plan is searched, one after another, until there is one."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The room that is to be opened."""

    wanted: Wanted
    room: str
    """In words: `a whole A100`, `40GiB`."""
    pod: str = ""
    """`namespace/name` of the pod that it is for; empty if it is for none."""
    uid: str = ""


def wish_for_demand(state: State, demand: Demand) -> Wish:
    return Wish(Wanted((demand,), eligible=state.open_nodes()), describe((demand,)))


def wish_for_pod(state: State, namespace: str, name: str) -> Wish:
    """Finds a pod that waits, by name."""
    own, slash, rest = name.partition("/")
    if slash:
        namespace, name = own, rest
    found = [pod for pod in state.pods if (pod.metadata.namespace, pod.metadata.name) == (namespace, name)]
    if not found:
        raise BadInput(f"--for: no pod {name!a} in namespace {namespace}: choose another with -n")
    pod = found[0]
    if not may_be_bound(pod):
        where = f"is on {pod.spec.node_name}" if pod.spec.node_name else "does not wait for a node"
        raise BadInput(
            f"--for: pod {namespace}/{name} {where}: name one that waits, as cotenant explain lists"
        )
    if not demands_of(pod, state.settings.dialects):
        raise BadInput(f"--for: pod {namespace}/{name} asks for no GPU: cotenant explain says why it waits")
    return _of_pod(state, pod)


def wishes_of_line(state: State, namespace: str | None = None) -> list[Wish]:
    """Returns the first pods in line that do not fit now, of one namespace if it is given."""
    view = state.view
    stuck = [view.pods[each.uid] for each in view.line if each.uid not in view.served.places]
    own = [pod for pod in stuck if namespace in {None, pod.metadata.namespace}]
    return [_of_pod(state, pod) for pod in own[:MOST_WAITING]]


def _of_pod(state: State, pod: Pod) -> Wish:
    meta, demands = pod.metadata, demands_of(pod, state.settings.dialects)
    wanted = Wanted(
        demands,
        meta.uid,
        beside_gpus(pod),
        pod_requests(pod),
        state.eligible_of(meta.uid),
    )
    return Wish(wanted, describe(demands), f"{meta.namespace}/{meta.name}", meta.uid)


def describe(demands: tuple[Demand, ...], model: str = "GPU") -> str:
    """Says what is asked for: `a whole A100`, `2 whole GPUs of one node`, `40Gi of A100`.

    `model`: that of the GPUs that were found, if the demand names none.
    """
    return " and ".join(_describe(demand, " or ".join(demand.models) or model) for demand in demands)


def _describe(demand: Demand, kind: str) -> str:
    if demand.memory is None:
        return f"a whole {kind}" if demand.whole == 1 else f"{demand.whole} whole {kind}s of one node"
    size = demand.memory
    each = format_bytes(demand.per_card(0)) if size.bytes is not None else f"{size}"
    return f"{each} of {kind}" if demand.gpus == 1 else f"{each} on each of {demand.gpus} {kind}s of one node"

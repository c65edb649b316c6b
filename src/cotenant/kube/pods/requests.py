"""Adds up what a pod requests, as kube-scheduler and the kubelet do, and finds whether it fits a node.

This is `PodRequests` of Kubernetes' component-helpers, with one difference: while a running pod is resized in
place, kube-scheduler counts the larger of the old and the new requests, and we count the new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil

from cotenant.core.loss import PLENTY, Requests, Spare
from cotenant.core.quantity import parse_quantity
from cotenant.dialects import names
from cotenant.kube.api.objects import Container, Node, Pod, PodSpec, Quantities, Resources
from cotenant.kube.pods.containers import goes_on
from cotenant.kube.pods.demand import has_ended

Amounts = dict[str, Fraction | int]
"""Exact, by resource."""

_CPU = "cpu"
_PODS = "pods"


def pod_requests(pod: Pod) -> dict[str, int]:
    """Returns what the pod takes of a node: CPU in thousandths, everything else in whole units, rounded up.

    Containers and sidecars run at the same time: they add up. An init container runs beside the sidecars
    that are listed before it, and counts where that is more. Requests of the pod as a whole replace these
    sums. The overhead of its runtime class comes on top.
    """
    total, sidecars, most = Amounts(), Amounts(), Amounts()
    for each in pod.spec.containers or ():
        _add(total, _read(each.resources.requests))
    for each in pod.spec.init_containers:
        own = _read(each.resources.requests)
        if goes_on(each.restart_policy):
            _add(total, own)
            _add(sidecars, own)
            own = sidecars
        else:
            _add(own, sidecars)
        _raise(most, own)
    _raise(total, most)
    total |= _read(_for_whole_pod(pod))
    _add(total, _read(pod.spec.overhead))
    return {**_counted(total), _PODS: 1}


def requests_of_all(pods: Iterable[Pod]) -> Counter[str]:
    """Adds up what these pods take, except those that have ended."""
    total = Counter[str]()
    for pod in pods:
        if not has_ended(pod):
            total.update(pod_requests(pod))
    return total


def fits_otherwise(pod: Pod, node: Node, others: Iterable[Pod]) -> bool:
    """Reports whether the pod fits the node beside the others, by all that kube-scheduler adds up: CPU,
    memory, pods, and the sums of GPU resources. Whether a single GPU has the room is not asked here.
    """
    taken, there = requests_of_all(others), allocatable(node)
    return all(
        taken[name] + amount <= there.get(name, 0) for name, amount in pod_requests(pod).items() if amount
    )


def allocatable(node: Node) -> dict[str, int]:
    """Returns what the node has for pods, in the units of `pod_requests`."""
    return _counted(_read(node.status.allocatable))


def beside_gpus(pod: Pod) -> Requests:
    """Returns what the pod takes of a node beside its GPUs, and whether it names a model of GPU."""
    spec = pod.spec
    taken = _remembered(
        tuple(tuple(each.resources.requests.items()) for each in spec.containers or ()),
        tuple((tuple(each.resources.requests.items()), each.restart_policy) for each in spec.init_containers),
        tuple(spec.resources.requests.items()),
        tuple(spec.overhead.items()),
    )
    return Requests(*taken, by_name=names.GPU_MODEL in pod.metadata.annotations)


def spare_of_node(node: Node) -> Spare:
    """Returns what the node has beside its GPUs for all pods together."""
    there = node.status.allocatable
    amounts = _counted(_read({name: there[name] for name in (_CPU, "memory", _PODS) if name in there}))
    return Spare(
        min(amounts.get(_CPU, PLENTY), PLENTY),
        min(amounts.get("memory", PLENTY), PLENTY),
        min(amounts.get(_PODS, PLENTY), PLENTY),
    )


_Amounts = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1024)
def _remembered(
    containers: tuple[_Amounts, ...],
    inits: tuple[tuple[_Amounts, str], ...],
    whole: _Amounts,
    overhead: _Amounts,
) -> tuple[int, int]:
    """Adds up CPU and memory. The pods of a cluster ask for the same few amounts."""
    spec = PodSpec(
        containers=tuple(Container("", Resources(dict(each))) for each in containers),
        init_containers=tuple(Container("", Resources(dict(each)), policy) for each, policy in inits),
        resources=Resources(dict(whole)),
        overhead=dict(overhead),
    )
    taken = pod_requests(Pod(spec=spec))
    return min(taken.get(_CPU, 0), PLENTY), min(taken.get("memory", 0), PLENTY)


def _for_whole_pod(pod: Pod) -> Quantities:
    """Returns requests of the pod as a whole; an extended resource cannot be requested so."""
    return {
        name: text
        for name, text in pod.spec.resources.requests.items()
        if name in {_CPU, "memory"} or name.startswith("hugepages-")
    }


def _counted(amounts: Mapping[str, Fraction | int]) -> dict[str, int]:
    return {name: ceil(amount * 1000 if name == _CPU else amount) for name, amount in amounts.items()}


def _read(quantities: Quantities) -> Amounts:
    """What cannot be read counts as nothing: the API server has checked it."""
    return {name: parse_quantity(text) or 0 for name, text in quantities.items()}


def _add(to: Amounts, amounts: Mapping[str, Fraction | int]) -> None:
    for name, amount in amounts.items():
        to[name] = to.get(name, 0) + amount


def _raise(to: Amounts, amounts: Mapping[str, Fraction | int]) -> None:
    """Raises each amount to at least this."""
    for name, amount in amounts.items():
        to[name] = max(to.get(name, 0), amount)

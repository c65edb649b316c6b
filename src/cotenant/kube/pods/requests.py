"""Whether a pod fits a node by what kube-scheduler counts besides GPUs: CPU, memory, pods and the like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

from cotenant.kube.api.objects import Container, Node, Pod, Quantities
from cotenant.kube.pods.demand import has_ended

_SCALE = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}

_MOST = Decimal("1e30")
"""No node has as much, and sums of much larger numbers cannot be computed."""


def fits_otherwise(pod: Pod, node: Node, others: Iterable[Pod]) -> bool:
    """With the others on the node, too."""
    taken: Counter[str] = Counter()
    for other in others:
        if not has_ended(other):
            taken.update(_needs(other))
    there = {name: _amount(text) for name, text in node.status.allocatable.items()}
    return all(
        taken[name] + amount <= there.get(name, Decimal(0)) for name, amount in _needs(pod).items() if amount
    )


def _needs(pod: Pod) -> dict[str, Decimal]:
    """As kube-scheduler counts: all containers and sidecars at once, or an init container with the sidecars
    that started before it if that is more.
    """
    sidecars = list[Container]()
    most: dict[str, Decimal] = {}
    for each in pod.spec.init_containers:
        if each.restart_policy == "Always":
            sidecars.append(each)
        else:
            most = _larger(most, _sum([*sidecars, each]))
    running = _sum([*(pod.spec.containers or ()), *sidecars])
    return {**_larger(most, running), "pods": Decimal(1)}


def _larger(one: dict[str, Decimal], other: dict[str, Decimal]) -> dict[str, Decimal]:
    none = Decimal(0)
    return {name: max(one.get(name, none), other.get(name, none)) for name in {**one, **other}}


def _sum(containers: Iterable[Container]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in containers:
        for name, amount in _requests(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _requests(container: Container) -> dict[str, Decimal]:
    asked: Quantities = {**container.resources.limits, **container.resources.requests}
    return {name: _amount(text) for name, text in asked.items()}


def _amount(text: str) -> Decimal:
    """What cannot be read counts as nothing: the API server has checked it."""
    number = text.rstrip("numkKMGTPEi")
    try:
        amount = Decimal(number) * _SCALE[text[len(number) :]]
    except (ArithmeticError, KeyError):
        return Decimal(0)
    return min(amount, _MOST) if amount.is_finite() else Decimal(0)

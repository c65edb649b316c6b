"""Decides which slots a pod needs, and what each is charged.

The kubelet hands the device of a plain init container on to the next container that asks for one, and lists
only that one. So plain init containers share the slot of the GPU container that follows them, and the slot
must do for the largest of them: its limit and its charge are the same all through the pod's life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.units import LARGEST
from cotenant.dialects import names
from cotenant.dialects.dialect import ContainerDemand, SlotDemand
from cotenant.dialects.reading import asks, read_container
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import Wishes, read_wishes
from cotenant.kube.pods.containers import PodContainer

MOST_CONTAINERS = 32
"""Containers with GPU in one pod. An author of pods must not be able to keep the server busy: each of them is
placed on the GPUs of every node, again and again while the pod waits.
"""
MOST_IN_ALL = 256
"""Containers of a pod with GPU, those without GPU included: every server keeps them in memory."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What a pod asks for in all."""

    slots: tuple[SlotDemand, ...] = ()
    """In the order in which the kubelet fills them; empty if the pod asks for no GPU."""
    mode: str | None = None
    """Whether its limits are to be observed, warned of or enforced; None: the namespace decides."""

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The demand of each slot."""
        return tuple(slot.demand for slot in self.slots)

    @property
    def memory(self) -> int:
        """Bytes that it asks for on shared cards."""
        return sum(slot.demand.memory.bytes or 0 for slot in self.slots if slot.demand.memory)

    @property
    def whole(self) -> int:
        """Cards that it is charged whole."""
        return sum(slot.demand.whole for slot in self.slots)


def slots_of_pod(
    containers: Sequence[PodContainer], annotations: Mapping[str, str], dialects: Dialects
) -> PodDemand:
    """Returns the demand of containers in the kubelet's order. BadInput names the container, resource and
    remedy.
    """
    found = sum(asks(container.resources, dialects) for container in containers)
    if not found:
        return PodDemand()
    if found > MOST_CONTAINERS:
        raise BadInput(
            f"spec: {found} containers ask for GPU, at most {MOST_CONTAINERS} of a pod may: "
            "put them in several pods"
        )
    if len({container.name for container in containers}) != len(containers):
        raise BadInput("spec: two containers have the same name: give each its own")
    wishes = read_wishes(annotations)
    slots: list[SlotDemand] = []
    waiting: list[ContainerDemand] = []
    asking: set[str] = set()
    for container in containers:
        demand = read_container(container.name, container.position, container.resources, wishes, dialects)
        if demand is None:
            continue
        waiting.append(demand)
        asking.add(container.name)
        if not container.ends_first:
            slots.append(_slot(waiting))
            waiting = []
    if waiting:
        slots.append(_slot([*waiting, _holder(containers, waiting, dialects)]))
    if not slots:
        return PodDemand()
    _check_counts(wishes, asking)
    return PodDemand(tuple(slots), wishes.mode)


def _slot(members: Sequence[ContainerDemand]) -> SlotDemand:
    holder = members[-1]
    return SlotDemand(holder.container, holder.position, _largest(members), tuple(members))


def _holder(
    containers: Sequence[PodContainer], members: Sequence[ContainerDemand], dialects: Dialects
) -> ContainerDemand:
    """Returns the pod's first container, which holds the slot of init containers that no GPU container
    follows.
    """
    first = next((each for each in containers if each.position == 0 and not each.ends_first), None)
    if first is None:
        raise BadInput("spec.containers: a pod needs at least one container")
    demand = _largest(members)
    return ContainerDemand(first.name, 0, dialects.native.name, demand, dialects.native.write(demand))


def _largest(members: Sequence[ContainerDemand]) -> Demand:
    """Returns a demand that covers all: as many GPUs as any asks for, on each as much as any asks for.

    Once all are admitted, it is the holder's own: admission wrote the slot's demand there, and quotas have
    counted that. Annotations that are changed later would make more of it.
    """
    if all(member.admitted for member in members):
        return members[-1].demand
    demands = [member.demand for member in members]
    first = demands[0]
    if all(demand == first for demand in demands):
        return first
    if any((demand.memory is None) != (first.memory is None) for demand in demands):
        raise BadInput(
            f"containers {', '.join(repr(member.container) for member in members)}: they use one slot, one "
            "after the other, and some ask for whole GPUs, some for memory: "
            f"ask for {names.GPU} in all or for {names.GPU_MEMORY} in all"
        )
    gpus = max(demand.gpus for demand in demands)
    if first.memory is None:
        return replace(first, gpus=gpus, whole=gpus)
    part = max(demand.per_card(0) for demand in demands)
    exact = [
        demand.memory.bytes or 0
        for demand in demands
        if demand.memory and demand.gpus == gpus and demand.per_card(0) == part
    ]
    size = max(exact, default=part * gpus)
    if size > LARGEST:
        holder = members[-1].container
        raise BadInput(f"container {holder!r}: {size} bytes are more than there can be: ask for less")
    compute = max((demand.compute for demand in demands if demand.compute is not None), default=None)
    return replace(first, memory=Memory(bytes=size), gpus=gpus, compute=compute)


def _check_counts(wishes: Wishes, asking: set[str]) -> None:
    for container in wishes.counts:
        if container not in asking:
            raise BadInput(
                f"annotation {names.gpu_count(container)}: container {container!r} asks for no GPU memory: "
                f"name one that does: {', '.join(sorted(asking))}"
            )

"""Defines a dialect: the resource names, annotations and variables in which demands and grants are written.

A dialect is one file with one frozen dataclass that meets this Protocol; its fields are its settings. It
decides nothing: it reads a container's resources into a Demand, and writes what its users expect to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.wishes import Wishes


@dataclass(frozen=True, slots=True)
class ContainerDemand:
    """What one container asks for, and in which dialect."""

    container: str
    position: int
    """Index in the pod: `containers` count from 0, `initContainers` follow after the last of them."""
    dialect: str
    demand: Demand
    asked: Mapping[str, int]
    """The dialect's resources that it asks for, in the dialect's units."""
    admitted: bool = False
    """Whether it has a slot: then admission wrote its native figures, and quotas have counted them."""


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """The demand of a slot. Its limit and its charge are equal: the largest demand of all its containers."""

    container: str
    """The container that holds the slot for the pod's lifetime; the kubelet lists it under this name."""
    position: int
    demand: Demand
    members: tuple[ContainerDemand, ...]
    """All containers that use it, in the order in which the kubelet starts them; the holder is the last."""


@dataclass(frozen=True, slots=True)
class GrantedGpu:
    """A GPU of a grant, and the grant's share of it."""

    gpu: GPU
    share: Share
    by_index: bool = True
    """Whether an index can name it to NVIDIA's container runtime: not on a node with MIG instances, which
    have none, and where versions of the runtime count differently.
    """


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot with the GPUs that it was granted, in the order of their indexes."""

    slot: SlotDemand
    cards: tuple[GrantedGpu, ...]


@dataclass(frozen=True, slots=True)
class Env:
    """An environment variable: a value known at admission, or the annotation into which bind writes it."""

    name: str
    value: str | None = None
    annotation: str | None = None


class Dialect(Protocol):
    """Reads demands and writes grants. Quantities that it is given are whole and above zero."""

    name: ClassVar[str]
    resources: ClassVar[tuple[str, ...]]
    """Every resource of this dialect, on containers or nodes."""
    pod_annotations: ClassVar[tuple[str, ...]]
    """Annotations that only the server may write, beside the native ones."""

    @property
    def unit_hint(self) -> str:
        """What to do if an amount of memory was meant in another unit."""

    @property
    def enabled(self) -> bool:
        """Whether pods may ask in this dialect and nodes report it."""

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        """Reads the demand; None if it asks for no resource of this dialect, BadInput if it is not valid."""

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        """Returns the capacity that a node with these GPUs reports."""

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        """Lists the container's environment variables."""

    def of_container(self, demand: ContainerDemand, cards: Sequence[GrantedGpu]) -> dict[str, str]:
        """Builds the annotations about one container, written at bind; `environment` refers to them."""

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        """Builds the annotations about the pod, written at bind (Unix ns), for slots with this dialect."""


def visible_indexes(cards: Sequence[GrantedGpu]) -> str:
    """Lists the GPUs by the driver's index, as older systems do; by UUID where an index names none."""
    return ",".join(str(card.gpu.index) if card.by_index else card.gpu.uuid for card in cards)


def visible_uuids(cards: Sequence[GrantedGpu]) -> str:
    """Lists the GPUs by UUID, which stays valid when a GPU is lost at boot and the indexes move."""
    return ",".join(card.gpu.uuid for card in cards)


def indexes(slots: Sequence[HeldSlot]) -> str:
    """Lists the indexes of the GPUs of several slots, each once: `0` or `0,1`."""
    return ",".join(map(str, sorted({card.gpu.index for slot in slots for card in slot.cards})))


def smallest_card(cards: Sequence[GrantedGpu], unit: int) -> int:
    """Returns the smallest GPU's size in whole units: a program that divides by it never takes too much."""
    return min(card.gpu.memory for card in cards) // unit


def see_cards(container: str) -> Env:
    """Returns the variable that shows a container its GPUs and no others."""
    return Env(names.VISIBLE_DEVICES, annotation=names.devices(container))


def shown_by_index(container: str, cards: Sequence[GrantedGpu], unit: int) -> dict[str, str]:
    """Returns the annotations by which older systems show a container its GPUs: their indexes, and the size
    of the smallest in this unit.
    """
    return {
        names.devices(container): visible_indexes(cards),
        names.card_memory(container): str(smallest_card(cards, unit)),
    }


class ShownByUuid:
    """The part of a dialect that shows a container its GPUs by UUID and writes nothing about the pod."""

    __slots__ = ()

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        return (see_cards(demand.container),)

    def of_container(self, demand: ContainerDemand, cards: Sequence[GrantedGpu]) -> dict[str, str]:
        return {names.devices(demand.container): visible_uuids(cards)}

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        del slots, bound_ns
        return {}

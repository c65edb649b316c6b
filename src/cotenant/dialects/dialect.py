"""What a dialect is: a way to spell demands and grants.

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
    """What one container asks for, and in which words."""

    container: str
    position: int
    """Place in the pod: `containers` count from 0, `initContainers` go on after the last of them."""
    dialect: str
    demand: Demand
    asked: Mapping[str, int]
    """The resources that the dialect knows, in its own units."""


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """What a slot is to hold. Its limit and its charge are one demand: the largest of all who use it."""

    container: str
    """The container that holds the slot for the pod's life; the kubelet lists it under this name."""
    position: int
    demand: Demand
    members: tuple[ContainerDemand, ...]
    """All who use it, in the order in which the kubelet starts them; the holder is the last."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card of a grant, and the grant's part of it."""

    gpu: GPU
    share: Share


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot with the cards that it was granted, in the order of their indexes."""

    slot: SlotDemand
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Env:
    """An environment variable: a value known at admission, or one that bind will write into an annotation."""

    name: str
    value: str | None = None
    annotation: str | None = None


class Dialect(Protocol):
    """A way to spell demands and grants. Quantities that it is given are whole and above zero."""

    name: ClassVar[str]
    resources: ClassVar[tuple[str, ...]]
    """Every resource of this dialect, on containers or nodes."""
    pod_annotations: ClassVar[tuple[str, ...]]
    """Annotations that only the server may write, beside the native ones."""

    @property
    def enabled(self) -> bool:
        """Whether demands are read and nodes described in this dialect."""

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        """The demand, None if this dialect's resources are not asked for, BadInput if they make no sense."""

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        """What a node with these cards shows."""

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        """What the container finds in its environment."""

    def of_container(self, demand: ContainerDemand, cards: Sequence[Card]) -> dict[str, str]:
        """Annotations about one container, written at bind; `environment` points to them."""

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        """Annotations about the pod, written at bind (Unix ns); the slots have a member of this dialect."""


def visible_indexes(cards: Sequence[Card]) -> str:
    """The cards as an index each, as older systems show them.

    A MIG instance has no such index (`0` would show the whole card): it goes by its UUID.
    """
    return ",".join(card.gpu.uuid if card.gpu.parent else str(card.gpu.index) for card in cards)


def visible_uuids(cards: Sequence[Card]) -> str:
    """The cards as UUIDs: these stay true when a card is lost at boot and the indexes move."""
    return ",".join(card.gpu.uuid for card in cards)


def indexes(slots: Sequence[HeldSlot]) -> str:
    """The cards of several slots, each once: `0` or `0,1`."""
    return ",".join(map(str, sorted({card.gpu.index for slot in slots for card in slot.cards})))


def smallest_card(cards: Sequence[Card], unit: int) -> int:
    """The size of the smallest card in whole units: a program that divides by it never claims too much."""
    return min(card.gpu.memory for card in cards) // unit


def see_cards(container: str) -> Env:
    """The variable by which a container is shown its cards and no others."""
    return Env(names.VISIBLE_DEVICES, annotation=names.devices(container))


def shown_by_index(container: str, cards: Sequence[Card], unit: int) -> dict[str, str]:
    """Returns the annotations by which older systems show a container its cards: their indexes, and the size
    of the smallest in this unit.
    """
    return {
        names.devices(container): visible_indexes(cards),
        names.card_memory(container): str(smallest_card(cards, unit)),
    }


class ShownByUuid:
    """The half of a dialect that shows a container its cards by UUID, and writes nothing about the pod."""

    __slots__ = ()

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        return (see_cards(demand.container),)

    def of_container(self, demand: ContainerDemand, cards: Sequence[Card]) -> dict[str, str]:
        return {names.devices(demand.container): visible_uuids(cards)}

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        del slots, bound_ns
        return {}

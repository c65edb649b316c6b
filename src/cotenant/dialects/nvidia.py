"""The spelling of NVIDIA's own device plugin, for clusters where we take its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.dialects import names
from cotenant.dialects.dialect import Card, ContainerDemand, Env, HeldSlot, see_cards, visible_uuids
from cotenant.dialects.wishes import Wishes

CARDS = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Nvidia:
    """Demands in `nvidia.com/gpu`: so many whole cards."""

    enabled: bool = False
    """Whether pods may ask in this dialect, and nodes show it: never where NVIDIA's plugin runs too."""

    name: ClassVar[str] = "nvidia"
    resources: ClassVar[tuple[str, ...]] = (CARDS,)
    pod_annotations: ClassVar[tuple[str, ...]] = ()

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        return wishes.whole_cards(container, CARDS, asked[CARDS]) if CARDS in asked else None

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        return {CARDS: len(gpus)}

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        return (see_cards(demand.container),)

    def of_container(self, demand: ContainerDemand, cards: Sequence[Card]) -> dict[str, str]:
        return {names.devices(demand.container): visible_uuids(cards)}

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        del slots, bound_ns
        return {}

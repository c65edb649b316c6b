"""Reads `nvidia.com/gpu`, the resource of NVIDIA's device plugin, for clusters where we replace it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.dialects.dialect import ShownByUuid
from cotenant.dialects.wishes import Wishes

CARDS = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Nvidia(ShownByUuid):
    """Reads demands in `nvidia.com/gpu`: a number of whole GPUs."""

    enabled: bool = False
    """Whether pods may ask in this dialect and nodes report it: never where NVIDIA's plugin runs too."""

    name: ClassVar[str] = "nvidia"
    resources: ClassVar[tuple[str, ...]] = (CARDS,)
    pod_annotations: ClassVar[tuple[str, ...]] = ()

    @property
    def unit_hint(self) -> str:
        return f"{CARDS} counts whole GPUs"

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        return wishes.whole_cards(container, CARDS, asked[CARDS]) if CARDS in asked else None

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        return {CARDS: len(gpus)}

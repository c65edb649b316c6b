"""Reads and writes the names of Volcano's GPU sharing and GPU number (volcano-sh/devices)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.dialects import names
from cotenant.dialects.dialect import (
    ContainerDemand,
    Env,
    GrantedGpu,
    HeldSlot,
    indexes,
    see_cards,
    shown_by_index,
)
from cotenant.dialects.wishes import Wishes

MEMORY = "volcano.sh/gpu-memory"
NUMBER = "volcano.sh/gpu-number"

_INDEX = "volcano.sh/gpu-index"
_PREDICATE_TIME = "volcano.sh/predicate-time"
_ASSIGNED = "volcano.sh/gpu-assigned"
_ALLOCATED = "VOLCANO_GPU_ALLOCATED"
_TOTAL = "VOLCANO_GPU_MEMORY_TOTAL"

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Volcano:
    """Reads demands in `volcano.sh/gpu-memory` and `volcano.sh/gpu-number`."""

    enabled: bool = True
    """Whether pods may ask in this dialect and nodes report it."""
    memory_factor: int = 1
    """MiB in one `volcano.sh/gpu-memory`: the device plugin's option --gpu-memory-factor."""

    name: ClassVar[str] = "volcano"
    resources: ClassVar[tuple[str, ...]] = (MEMORY, NUMBER)
    pod_annotations: ClassVar[tuple[str, ...]] = (_INDEX, _PREDICATE_TIME, _ASSIGNED)

    def __post_init__(self) -> None:
        if not 1 <= self.memory_factor <= 2**20:
            raise BadInput(f"memory_factor: {self.memory_factor} is not a number of MiB from 1 to {2**20}")

    @property
    def _unit(self) -> int:
        return self.memory_factor * _MIB

    @property
    def unit_hint(self) -> str:
        return f"{MEMORY} is in {self.memory_factor} MiB here (dialects.volcano.memory_factor): ask for less"

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        if MEMORY in asked and NUMBER in asked:
            raise BadInput(
                f"container {container!r}: {NUMBER}: a whole GPU brings all its memory: "
                f"leave out either {NUMBER} or {MEMORY}"
            )
        if MEMORY in asked:
            return wishes.memory(container, MEMORY, asked[MEMORY] * self._unit)
        return wishes.whole_cards(container, NUMBER, asked[NUMBER]) if NUMBER in asked else None

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        return {MEMORY: sum(gpu.memory // self._unit for gpu in gpus), NUMBER: len(gpus)}

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        """Lists the variables: allocated MiB, or GPUs if GPUs were asked for, as in Volcano's guides."""
        asked = demand.asked
        allocated = asked[MEMORY] * self.memory_factor if MEMORY in asked else asked[NUMBER]
        return (
            see_cards(demand.container),
            Env(_ALLOCATED, value=str(allocated)),
            Env(_TOTAL, annotation=names.card_memory(demand.container)),
        )

    def of_container(self, demand: ContainerDemand, cards: Sequence[GrantedGpu]) -> dict[str, str]:
        return shown_by_index(demand.container, cards, _MIB)

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        return {_INDEX: indexes(slots), _PREDICATE_TIME: str(bound_ns), _ASSIGNED: "true"}

"""Reads and writes the names of gpushare-scheduler-extender and gpushare-device-plugin (Alibaba Cloud)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.dialects import dialect, names
from cotenant.dialects.dialect import ContainerDemand, Env, GrantedGpu, HeldSlot
from cotenant.dialects.wishes import Wishes

MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"

_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
_CARD = "ALIYUN_COM_GPU_MEM_DEV"
_POD = "ALIYUN_COM_GPU_MEM_POD"
_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
_ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
_ALLOCATION = "scheduler.framework.gpushare.allocation"

_UNITS = {"GiB": 2**30, "MiB": 2**20}


@dataclass(frozen=True, slots=True)
class Aliyun:
    """Reads demands in `aliyun.com/gpu-mem`."""

    enabled: bool = True
    """Whether pods may ask in this dialect and nodes report it."""
    unit: Literal["GiB", "MiB"] = "GiB"
    """The unit of `aliyun.com/gpu-mem`: the device plugin's option --memory-unit, with the same default."""

    name: ClassVar[str] = "aliyun"
    resources: ClassVar[tuple[str, ...]] = (MEMORY, COUNT)
    pod_annotations: ClassVar[tuple[str, ...]] = (_INDEX, _CARD, _POD, _ASSIGNED, _ASSUME_TIME, _ALLOCATION)

    @property
    def bytes_each(self) -> int:
        """Bytes of one `aliyun.com/gpu-mem`."""
        return _UNITS[self.unit]

    @property
    def unit_hint(self) -> str:
        if self.unit == "MiB":
            return f"{MEMORY} is in MiB here: ask for less"
        return (
            f"{MEMORY} is in GiB here: ask for less, or if MiB are meant, as where the device plugin has "
            "--memory-unit=MiB, an administrator sets dialects.aliyun.unit to MiB"
        )

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        if COUNT in asked:
            raise BadInput(
                f"container {container!r}: {COUNT}: nodes show this, containers do not ask for it: "
                f"ask for {MEMORY}, or for whole GPUs with {names.GPU}"
            )
        if MEMORY not in asked:
            return None
        return wishes.memory(container, MEMORY, asked[MEMORY] * self.bytes_each)

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        """Rounds each GPU down by itself: gpushare's tools divide the sum by the count of GPUs."""
        return {MEMORY: sum(gpu.memory // self.bytes_each for gpu in gpus), COUNT: len(gpus)}

    def environment(self, demand: ContainerDemand) -> tuple[Env, ...]:
        return (
            dialect.see_cards(demand.container),
            Env(_INDEX, annotation=names.devices(demand.container)),
            Env(_POD, annotation=_POD),
            Env(_CONTAINER, value=str(demand.asked[MEMORY])),
            Env(_CARD, annotation=names.card_memory(demand.container)),
        )

    def of_container(self, demand: ContainerDemand, cards: Sequence[GrantedGpu]) -> dict[str, str]:
        return dialect.shown_by_index(demand.container, cards, self.bytes_each)

    def of_pod(self, slots: Sequence[HeldSlot], bound_ns: int) -> dict[str, str]:
        """Keys the allocation by the container's number: its readers decode `map[int]map[string]int`."""
        allocation = {
            str(held.slot.position): {
                str(card.gpu.index): -(-card.share.memory // self.bytes_each) for card in held.cards
            }
            for held in slots
        }
        cards = [card for held in slots for card in held.cards]
        return {
            _INDEX: dialect.indexes(slots),
            _CARD: str(dialect.smallest_card(cards, self.bytes_each)),
            _POD: str(sum(sum(memory.values()) for memory in allocation.values())),
            _ASSIGNED: "true",
            _ASSUME_TIME: str(bound_ns),
            _ALLOCATION: json.dumps(allocation, separators=(",", ":")),
        }

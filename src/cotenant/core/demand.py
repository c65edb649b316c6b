"""Describes what one container or command asks for: GPU memory, compute, whole GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU, named
from cotenant.core.units import ACCEPTED_MEMORY, Memory

__all__ = ["PLACEMENTS", "Demand", "Memory"]

PLACEMENTS = ("frag", "binpack", "spread")
"""The names of the placement policies, the default first."""

MOST_CARDS = 1024
"""More GPUs than one machine can have: a larger number is a mistake."""

SLOT_CARDS = 16
"""The GPUs that one slot can limit (COT_CARDS of csrc/include/cotenant_slot.h): a container with more does
not start.
"""


@dataclass(frozen=True, slots=True)
class Demand:
    """Memory on one or several GPUs, or whole GPUs.

    Memory in bytes is the total, split evenly over the GPUs; a percentage is of each GPU. Without memory it
    asks for whole GPUs.
    """

    memory: Memory | None = None
    gpus: int = 1
    whole: int = 0
    compute: int | None = None
    """Percent of each GPU's compute, 1 to 100."""
    models: tuple[str, ...] = ()
    """Only GPUs of these models; empty: any."""
    uuids: tuple[str, ...] = ()
    """Only these GPUs; empty: any. Until `with_uuids_of` also by index or the beginning of a UUID."""
    placement: str = "frag"

    def __post_init__(self) -> None:
        _number(self.gpus, "gpus", 1, MOST_CARDS, "the number of GPUs")
        _number(self.whole, "whole", 0, MOST_CARDS, "the number of whole GPUs")
        if self.compute is not None:
            _number(self.compute, "gpu-compute", 1, 100, "the percentage of one GPU's compute")
        _names(self.models, "gpu-model", "A100,H100")
        _names(self.uuids, "gpu", "1 or GPU-5a3f0e1c")
        if self.placement not in PLACEMENTS:
            raise BadInput(f"placement: {self.placement!r} is not known: take one of {', '.join(PLACEMENTS)}")
        if self.memory is None:
            self._as_whole_cards()
        elif not isinstance(self.memory, Memory):
            raise BadInput(
                f"gpu-memory: {self.memory!r} is not an amount of memory: write it like {ACCEPTED_MEMORY}"
            )
        elif self.whole:
            raise BadInput(
                "whole: a whole GPU brings all its memory: leave out either --whole or --gpu-memory"
            )
        elif self.memory.bytes is not None and self.memory.bytes < self.gpus:
            raise BadInput(f"gpu-memory: {self.memory.bytes} bytes cannot be spread over {self.gpus} GPUs")

    def _as_whole_cards(self) -> None:
        if self.compute is not None:
            raise BadInput(
                "gpu-compute: a whole GPU brings all its compute: leave out --gpu-compute, "
                "or ask for a part of the GPU with --gpu-memory"
            )
        cards = max(self.whole, self.gpus)
        object.__setattr__(self, "whole", cards)
        object.__setattr__(self, "gpus", cards)

    @property
    def count(self) -> int:
        """The number of GPUs it needs."""
        return self.gpus

    @property
    def plain(self) -> int | None:
        """The bytes, if it asks for memory of any one GPU and nothing else; otherwise None."""
        if self.memory is None or self.gpus != 1 or self.compute or self.models or self.uuids:
            return None
        return self.memory.bytes

    def per_card(self, card_bytes: int) -> int:
        """Returns the bytes it takes of one GPU of this size."""
        if self.memory is None:
            return card_bytes
        if self.memory.bytes is None:
            return self.memory.on(card_bytes)
        return -(-self.memory.bytes // self.gpus)

    def accepts(self, gpu: GPU) -> bool:
        """Whether model and UUID allow this GPU, whether or not it has room."""
        return (not self.uuids or gpu.uuid in self.uuids) and (
            not self.models or any(gpu.is_model(wish) for wish in self.models)
        )

    def with_uuids_of(self, gpus: Iterable[GPU]) -> Demand:
        """Replaces indices and beginnings of UUIDs, as people write them, by the full UUIDs of these GPUs.

        An index may mean another GPU after the next boot, so only a UUID is kept. What names no GPU stays.
        """
        present = tuple(gpus)
        full = dict.fromkeys(_full_uuid(asked, present) for asked in self.uuids)
        return replace(self, uuids=tuple(full)) if tuple(full) != self.uuids else self

    def to_json(self) -> dict[str, Any]:
        memory = self.memory
        return {
            "memory": memory.bytes if memory else None,
            "percent": str(memory.percent) if memory and memory.percent is not None else None,
            "gpus": self.gpus,
            "whole": self.whole,
            "compute": self.compute,
            "models": list(self.models),
            "uuids": list(self.uuids),
            "placement": self.placement,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Demand:
        """Reads what `to_json` wrote; BadInput if anything in it is not valid."""
        return cls(
            memory=_memory(data.get("memory"), data.get("percent")),
            gpus=data.get("gpus", 1),
            whole=data.get("whole", 0),
            compute=data.get("compute"),
            models=tuple(data.get("models", ())),
            uuids=tuple(data.get("uuids", ())),
            placement=data.get("placement", PLACEMENTS[0]),
        )


def _full_uuid(asked: str, gpus: tuple[GPU, ...]) -> str:
    found = named(asked, gpus)
    if len(found) > 1:
        meant = " or ".join(f"{gpu.uuid} ({gpu}, {gpu.model})" for gpu in found)
        raise BadInput(
            f"gpu: {asked} is the beginning of several UUIDs, {meant}: write more of it, or the index"
        )
    return found[0].uuid if found else asked


def _memory(size: Any, percent: Any) -> Memory | None:
    if size is None and percent is None:
        return None
    try:
        return Memory(bytes=size, percent=None if percent is None else Fraction(percent))
    except (TypeError, ValueError, ZeroDivisionError):
        raise BadInput(f"gpu-memory: {percent!r} is not a percentage of a GPU") from None


def _number(value: object, field: str, least: int, most: int, meaning: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(f"{field}: {value!r} is not {meaning}: a whole number from {least} to {most}")


def _names(values: Iterable[object], field: str, example: str) -> None:
    if not isinstance(values, tuple) or any(
        not isinstance(value, str) or not value.strip() for value in values
    ):
        raise BadInput(f"{field}: {values!r} has an empty or unreadable name: write it like {example}")

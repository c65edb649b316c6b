"""Caps what one owner may have at a time, so that one user does not take every GPU of a shared machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant
from cotenant.core.refusal import OverCap, Refusal
from cotenant.core.units import format_apart


class Holding(NamedTuple):
    """What one owner has now."""

    grants: int = 0
    memory: int = 0
    """Bytes, on all GPUs together."""

    def plus(self, grant: Grant) -> Holding:
        return Holding(self.grants + 1, self.memory + grant.memory)


def least_memory(demand: Demand, gpus: Iterable[GPU]) -> int:
    """Returns the least that the demand takes in all: a percentage is less on a smaller GPU."""
    sizes = (demand.per_card(gpu.memory) for gpu in gpus if demand.accepts(gpu))
    return min(sizes, default=0) * demand.count


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that each owner may have; None: no cap."""

    running: int | None = None
    """Grants at a time."""
    memory: int | None = None
    """Bytes granted at a time, on all GPUs together."""
    waiting: int | None = None
    """Demands in line at a time."""
    exempt: frozenset[str] = frozenset()
    """Owners without caps."""

    def refuse(self, owner: str, holding: Holding, memory: int) -> Refusal | None:
        """Returns why the owner may not have one grant of this size beside what it holds; None if it may."""
        if owner in self.exempt:
            return None
        if self.running is not None and holding.grants >= self.running:
            return OverCap(
                f"{owner} has {holding.grants} running, one user may have {self.running} at a time"
            )
        if self.memory is not None and holding.memory + memory > self.memory:
            more, most = format_apart(holding.memory + memory, self.memory)
            return OverCap(f"{owner} would have {more} in all, one user may have {most} at a time")
        return None

    def never(self, owner: str, demand: Demand, gpus: Iterable[GPU]) -> str | None:
        """Explains why the owner may not have the demand even if it holds nothing else; None if it may."""
        least = least_memory(demand, gpus)
        if owner in self.exempt or self.memory is None or least <= self.memory:
            return None
        asked, most = format_apart(least, self.memory)
        return f"{asked} asked in all, one user may have {most} at a time"

    def full_line(self, owner: str, waiting: int) -> bool:
        """Whether the owner has more demands in line than it may, with `waiting` of them."""
        return owner not in self.exempt and self.waiting is not None and waiting > self.waiting


NO_CAPS = Caps()

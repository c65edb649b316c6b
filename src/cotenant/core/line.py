"""Serves waiting demands in order, with backfill and without starvation.

A smaller demand may overtake a bigger one that does not fit yet, so that GPUs are not left idle. A demand
that has waited for `patience` holds GPUs: no demand behind it is placed there any more, so they drain, and it
starts at the latest when the longest running job on them ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cotenant.core.demand import Demand
from cotenant.core.grant import Grant
from cotenant.core.ledger import Ledger, Room
from cotenant.core.placement import Typical, place


@dataclass(frozen=True, slots=True)
class Waiting:
    """One demand in the line."""

    id: str
    demand: Demand
    priority: int
    since: float
    """When it joined, on the clock of `now`."""
    held: tuple[str, ...] = ()
    """The GPUs held for it by the last `serve`."""


@dataclass(frozen=True, slots=True)
class Served:
    """What `serve` decided. The caller charges the admitted and stores the holds; others hold nothing."""

    admitted: tuple[Grant, ...]
    held: Mapping[str, tuple[str, ...]]
    """The GPUs held for each waiting demand, by its id."""
    ledger: Ledger
    """The ledger with the admitted charged."""

    def held_for(self, asking: str | None = None) -> dict[str, str]:
        """Maps each GPU held for another demand to that demand's id, as `why_not` takes it."""
        return {uuid: id for id, uuids in self.held.items() for uuid in uuids if id != asking}


def order(line: Iterable[Waiting]) -> list[Waiting]:
    """Sorts the line: higher priority first, then earlier, then by id so that all processes agree."""
    return sorted(line, key=lambda waiting: (-waiting.priority, waiting.since, waiting.id))


def place_in_line(line: Iterable[Waiting], id: str) -> int:
    """Returns the place in line; 1 is the head."""
    for place_, waiting in enumerate(order(line), start=1):
        if waiting.id == id:
            return place_
    raise KeyError(id)


def serve(ledger: Ledger, line: Iterable[Waiting], now: float, patience: float, typical: Typical) -> Served:
    """Decides which demands start now and which GPUs are held. The given ledger is not changed."""
    after, queue = ledger.copy(), order(line)
    admitted, held, closed = list[Grant](), dict[str, tuple[str, ...]](), set[str]()
    held_before = {uuid: waiting.id for waiting in reversed(queue) for uuid in waiting.held}
    for waiting in queue:
        shares = place(after, waiting.demand, typical, closed)
        if shares is not None:
            grant = Grant(waiting.id, shares)
            after.charge(grant)
            admitted.append(grant)
        elif now - waiting.since >= patience:
            cards = _hold(after, waiting, closed, held_before)
            if cards:
                held[waiting.id] = cards
                closed.update(cards)
    return Served(tuple(admitted), held, after)


def _hold(
    ledger: Ledger, waiting: Waiting, closed: set[str], held_before: Mapping[str, str]
) -> tuple[str, ...]:
    """Chooses the GPUs to hold: all that it needs or none, since a part of them would stay idle for nothing.

    Those it held before stay; then come GPUs that were not held, and among equals those with the most room.
    """
    usable = [
        room
        for room in ledger.room()
        if room.gpu.uuid not in closed and _fits_once_drained(room, waiting.demand)
    ]
    if len(usable) < waiting.demand.count:
        return ()
    ranked = sorted(
        usable, key=lambda room: (room.gpu.uuid not in waiting.held, room.gpu.uuid in held_before, -room.free)
    )
    return tuple(sorted(room.gpu.uuid for room in ranked[: waiting.demand.count]))


def _fits_once_drained(room: Room, demand: Demand) -> bool:
    """Whether it fits once every grant on the GPU has ended; memory outside grants may never be freed."""
    gpu = room.gpu
    return gpu.healthy and demand.accepts(gpu) and demand.per_card(gpu.memory) <= gpu.memory - room.outside

"""The demands that wait, in the order in which they are served.

A smaller demand may pass a bigger one that does not fit yet, so that cards are not left idle. But one that
has waited as long as `patience` holds cards: nobody behind it is put there any more, so they drain, and it
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
    """When it came, on the clock of `now`."""
    held: tuple[str, ...] = ()
    """The cards held for it by the last `serve`."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is to be done: charge the admitted, remember the holds (those not named hold nothing)."""

    admitted: tuple[Grant, ...]
    held: Mapping[str, tuple[str, ...]]
    """Id of a waiting demand to the cards held for it."""
    ledger: Ledger
    """As it is with the admitted charged."""

    def held_for(self, asking: str | None = None) -> dict[str, str]:
        """UUID of each held card to the id it is held for, as `why_not` takes it; not one's own."""
        return {uuid: id for id, uuids in self.held.items() for uuid in uuids if id != asking}


def order(line: Iterable[Waiting]) -> list[Waiting]:
    """Higher priority first, then who came first, then by id so that all agree."""
    return sorted(line, key=lambda waiting: (-waiting.priority, waiting.since, waiting.id))


def place_in_line(line: Iterable[Waiting], id: str) -> int:
    """1 is the head."""
    for place_, waiting in enumerate(order(line), start=1):
        if waiting.id == id:
            return place_
    raise KeyError(id)


def serve(ledger: Ledger, line: Iterable[Waiting], now: float, patience: float, typical: Typical) -> Served:
    """Decide who starts now and which cards are held for whom. The ledger given is not changed."""
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
    """The cards to hold: all that it needs or none, since a part of them would lie idle for nothing.

    Those it held before stay; then come cards that nobody held before, and among equals those with most room.
    """
    usable = [
        room for room in ledger.room() if room.gpu.uuid not in closed and _will_do(room, waiting.demand)
    ]
    if len(usable) < waiting.demand.count:
        return ()
    ranked = sorted(
        usable, key=lambda room: (room.gpu.uuid not in waiting.held, room.gpu.uuid in held_before, -room.free)
    )
    return tuple(sorted(room.gpu.uuid for room in ranked[: waiting.demand.count]))


def _will_do(room: Room, demand: Demand) -> bool:
    """Whether it fits once every grant on the card has ended; what is held outside may never end."""
    gpu = room.gpu
    return gpu.healthy and demand.accepts(gpu) and demand.per_card(gpu.memory) <= gpu.memory - room.outside

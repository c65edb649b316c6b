"""Serves waiting demands in order, with backfill and without starvation.

Owners take turns, so twenty demands of one do not go before the first of another. A turn is taken when the
first demand of an owner is admitted. What overtakes its owner's first costs no turn, since it uses room that
the first cannot use: so each other owner passes a demand that is first of its owner's at most once.

A smaller demand may overtake a bigger one that does not fit yet, so that GPUs are not left idle. A demand
that has waited for `patience` holds GPUs: no demand behind it is placed there any more, so they drain, and it
starts at the latest when the longest running job on them ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol, TypeVar

from cotenant.core.caps import NO_CAPS, Caps, Holding, least_memory
from cotenant.core.demand import Demand
from cotenant.core.grant import Grant
from cotenant.core.learning import Supply, learn
from cotenant.core.ledger import Ledger, Room
from cotenant.core.placement import place
from cotenant.core.refusal import Refusal
from cotenant.core.seen_pods import SeenPods


@dataclass(frozen=True, slots=True)
class Waiting:
    """One demand in the line."""

    id: str
    demand: Demand
    priority: int
    """Among the demands of its owner; the higher is first."""
    since: float
    """When it joined, on the clock of `now`."""
    held: tuple[str, ...] = ()
    """The GPUs held for it by the last `serve`."""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Fairness:
    """What owners have had, and what they may have."""

    turns: Mapping[str, int] = field(default_factory=dict)
    """The number of each owner's last turn; it grows with each turn. An owner without one goes first."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The owner of each grant in the ledger, by the grant's id."""
    caps: Caps = NO_CAPS

    def refuse(self, waiting: Waiting, holding: Mapping[str, Holding], ledger: Ledger) -> Refusal | None:
        """Returns why its owner may not have it now, wherever there is room; None if it may."""
        memory = least_memory(waiting.demand, (room.gpu for room in ledger.room()))
        return self.caps.refuse(waiting.owner, holding.get(waiting.owner, Holding()), memory)

    def holding(self, ledger: Ledger) -> dict[str, Holding]:
        held: dict[str, Holding] = {}
        for id, grant in ledger.grants.items():
            owner = self.owners.get(id, "")
            held[owner] = held.get(owner, Holding()).plus(grant)
        return held


@dataclass(frozen=True, slots=True)
class Served:
    """What `serve` decided. The caller charges the admitted and stores the holds; others hold nothing."""

    admitted: tuple[Grant, ...]
    held: Mapping[str, tuple[str, ...]]
    """The GPUs held for each waiting demand, by its id."""
    ledger: Ledger
    """The ledger with the admitted charged."""
    turns: tuple[str, ...] = ()
    """The ids of the admitted that took a turn of their owner, in order."""

    def held_for(self, asking: str | None = None) -> dict[str, str]:
        """Maps each GPU held for another demand to that demand's id, as `why_not` takes it."""
        return {uuid: id for id, uuids in self.held.items() for uuid in uuids if id != asking}


class InLine(Protocol):
    """What the order of the line depends on."""

    @property
    def id(self) -> str: ...

    @property
    def owner(self) -> str: ...

    @property
    def priority(self) -> int: ...

    @property
    def since(self) -> float: ...


W = TypeVar("W", bound=InLine)


def order(line: Iterable[W], turns: Mapping[str, int] | None = None) -> list[W]:
    """Sorts the line: the first demand of each owner, then the second of each, and so on.

    Owners go in the order of their last turns, the longest ago first; those without one by how long their
    first demand waits. An owner's own demands go by priority, then age, then id, so that all processes agree.
    """
    own: dict[str, list[W]] = {}
    for waiting in sorted(line, key=lambda waiting: (-waiting.priority, waiting.since, waiting.id)):
        own.setdefault(waiting.owner, []).append(waiting)
    last = turns or {}
    owners = sorted(
        own, key=lambda owner: (last.get(owner, -1), min(each.since for each in own[owner]), owner)
    )
    rounds = zip_longest(*(own[owner] for owner in owners))
    return [waiting for round_ in rounds for waiting in round_ if waiting is not None]


def place_in_line(line: Iterable[Waiting], id: str, turns: Mapping[str, int] | None = None) -> int:
    """Returns the place in line; 1 is the head."""
    for place_, waiting in enumerate(order(line, turns), start=1):
        if waiting.id == id:
            return place_
    raise KeyError(id)


def serve(
    ledger: Ledger,
    line: Iterable[Waiting],
    now: float,
    patience: float,
    seen: SeenPods,
    fairness: Fairness | None = None,
) -> Served:
    """Decides which demands start now and which GPUs are held. The given ledger is not changed. `seen`: the
    demands that were served before.
    """
    fair, loss = fairness or Fairness(), learn(seen, Supply.of(ledger.gpus))
    after, queue = ledger.copy(), order(line, fair.turns)
    admitted, held, closed = list[Grant](), dict[str, tuple[str, ...]](), set[str]()
    held_before = {uuid: waiting.id for waiting in reversed(queue) for uuid in waiting.held}
    holding, passed, turns = fair.holding(ledger), set[str](), list[str]()
    for waiting in queue:
        shares = place(after, waiting.demand, loss, closed)
        if shares is not None:
            grant, has = Grant(waiting.id, shares), holding.get(waiting.owner, Holding())
            if fair.caps.refuse(waiting.owner, has, grant.memory) is not None:
                passed.add(waiting.owner)  # and holds nothing: no room would help it
                continue
            after.charge(grant)
            admitted.append(grant)
            holding[waiting.owner] = has.plus(grant)
            if waiting.owner not in passed:
                turns.append(waiting.id)
            continue
        passed.add(waiting.owner)
        if now - waiting.since >= patience and fair.refuse(waiting, holding, after) is None:
            cards = _hold(after, waiting, closed, held_before)
            if cards:
                held[waiting.id] = cards
                closed.update(cards)
    return Served(tuple(admitted), held, after, tuple(turns))


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

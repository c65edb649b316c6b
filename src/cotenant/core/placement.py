"""Places a demand on GPUs: a table of policies (frag, binpack, spread) over one loop.

A policy only ranks GPUs; which of them fit is decided before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from cotenant.core.demand import Demand
from cotenant.core.grant import Share
from cotenant.core.learning import Supply, learn
from cotenant.core.ledger import Ledger, Room
from cotenant.core.loss import Loss, Outlook
from cotenant.core.refusal import (
    NoRoomNow,
    Refusal,
    TooBig,
    TooFewBigCards,
    TooFewCards,
    UnknownModel,
    UnknownUUID,
)
from cotenant.core.seen_pods import SeenPods

__all__ = ["POLICIES", "choose", "impossible", "lost_by", "place", "why_not"]

Key = tuple[float, ...]
Policy = Callable[[Sequence[Room], Demand, Outlook, Sequence[int]], int]
"""Chooses the GPU for the next part of a demand, among those at the positions where it fits."""


def place(
    ledger: Ledger, demand: Demand, loss: Loss | None = None, closed: Collection[str] = frozenset()
) -> tuple[Share, ...] | None:
    """Returns the shares it would get, or None if there is no room now. Nothing is charged.

    `loss` measures what a placement loses to others; without it nothing is known of them.
    """
    rooms = sorted(ledger.room(), key=lambda room: (room.gpu.index, room.gpu.uuid))
    if loss is None:
        loss = learn(SeenPods(), Supply.of(ledger.gpus))
    taken = choose(rooms, demand, Outlook(loss, reserved=_reserved(rooms, demand, loss)), closed)
    return None if taken is None else tuple(_share(rooms[at], demand) for at in taken)


def choose(
    rooms: Sequence[Room], demand: Demand, outlook: Outlook, closed: Collection[str] = frozenset()
) -> tuple[int, ...] | None:
    """Chooses the GPUs of one machine by their positions, in the order of the rooms."""
    now, taken = list(rooms), list[int]()
    open_at = [at for at, room in enumerate(rooms) if room.gpu.uuid not in closed and room.fits(demand)]
    if len(open_at) < demand.count:
        return None
    policy = POLICIES[demand.placement]
    for _ in range(demand.count):
        best = policy(now, demand, outlook, _first_of_alike(now, open_at))
        now[best] = now[best].after(_share(now[best], demand))
        open_at.remove(best)
        taken.append(best)
    return tuple(sorted(taken))


def _reserved(rooms: Iterable[Room], demand: Demand, loss: Loss) -> frozenset[str]:
    """Returns the models that are kept for others, who ask for them by name. Who of those that have a grant
    did so is not known here: it counts as nobody.
    """
    if not loss.usual:
        return frozenset()
    free: dict[str, int] = {}
    for room in rooms:
        free[room.gpu.model] = free.get(room.gpu.model, 0) + room.free
    return loss.reserved(free, {}, demand.models)


def _first_of_alike(rooms: Sequence[Room], positions: Sequence[int]) -> tuple[int, ...]:
    """Keeps one GPU of each group of equal rooms: most are empty or full, and the first would win anyway."""
    first = dict[tuple[object, ...], int]()
    for at in positions:
        room = rooms[at]
        first.setdefault((room.free, room.gpu.memory, room.compute_free, room.unused, room.gpu.model), at)
    return tuple(first.values())


def _share(room: Room, demand: Demand) -> Share:
    gpu = room.gpu
    return Share(gpu.uuid, demand.per_card(gpu.memory), demand.compute, whole=demand.memory is None)


def _best_fit(room: Room, demand: Demand) -> Key:
    """Ranks by what is left over; of GPUs granted whole, the smallest comes first."""
    left = 0 if demand.memory is None else room.free - demand.per_card(room.gpu.memory)
    return left, room.gpu.memory


def _binpack(rooms: Sequence[Room], demand: Demand, _outlook: Outlook, fit: Sequence[int]) -> int:
    return min(fit, key=lambda at: (_best_fit(rooms[at], demand), at))


def _spread(rooms: Sequence[Room], demand: Demand, _outlook: Outlook, fit: Sequence[int]) -> int:
    return min(fit, key=lambda at: (-rooms[at].free, _best_fit(rooms[at], demand), at))


def lost_by(
    rooms: Sequence[Room], demand: Demand, outlook: Outlook, closed: Collection[str] = ()
) -> int | None:
    """Returns what is lost on the machine once a part of one card is where `frag` puts it, as
    `Outlook.lost_after` measures it; None if it fits nowhere.
    """
    fit = [at for at, room in enumerate(rooms) if room.gpu.uuid not in closed and room.fits(demand)]
    best = _best_cards(rooms, demand, outlook, _first_of_alike(rooms, fit))
    return min((_lost(rooms, demand, outlook, at) for at in best), default=None)


def _frag(rooms: Sequence[Room], demand: Demand, outlook: Outlook, fit: Sequence[int]) -> int:
    """Several parts and whole cards go where least is left. A part of one card goes to the GPU in use where
    least is lost, or to an unused one if that loses less on the whole.
    """
    if demand.memory is None or demand.count > 1:
        return _binpack(rooms, demand, outlook, fit)
    best = _best_cards(rooms, demand, outlook, fit)
    return best[0] if len(best) == 1 else min(best, key=lambda at: _lost(rooms, demand, outlook, at))


def _best_cards(
    rooms: Sequence[Room], demand: Demand, outlook: Outlook, fit: Sequence[int]
) -> tuple[int, ...]:
    """Returns the card in use where a part of one card loses least, and the unused one, if there are such."""

    def on_card(at: int) -> tuple[int, int]:
        room, size = rooms[at], rooms[at].gpu.memory
        need, card = demand.per_card(size), outlook.loss.card(size)
        return card.used(room.free - need) - card.of(room) + outlook.reserve(room.gpu, need), at

    groups = ([at for at in fit if rooms[at].unused is unused] for unused in (False, True))
    return tuple(min(group, key=on_card) for group in groups if group)


def _lost(rooms: Sequence[Room], demand: Demand, outlook: Outlook, at: int) -> int:
    """Returns what is lost on the machine once the part is on this card."""
    after = rooms[at].after(_share(rooms[at], demand))
    return outlook.lost_after(rooms, [*rooms[:at], after, *rooms[at + 1 :]])


POLICIES: dict[str, Policy] = {"frag": _frag, "binpack": _binpack, "spread": _spread}


def impossible(ledger: Ledger, demand: Demand) -> Refusal | None:
    """Returns why these GPUs can never serve the demand, even if all were free and healthy, or None."""
    gpus = tuple(sorted(ledger.gpus, key=lambda gpu: (gpu.index, gpu.uuid)))
    for uuid in demand.uuids:
        if all(gpu.uuid != uuid for gpu in gpus):
            return UnknownUUID(uuid, gpus)
    if demand.models and not any(gpu.is_model(wish) for gpu in gpus for wish in demand.models):
        return UnknownModel(demand.models, gpus)
    wished = [gpu for gpu in gpus if demand.accepts(gpu)]
    if len(wished) < demand.count:
        return TooFewCards(demand, len(wished))
    large = [gpu for gpu in wished if demand.per_card(gpu.memory) <= gpu.memory]
    if not large:
        largest = max(wished, key=lambda gpu: gpu.memory)
        return TooBig(demand, largest, _spread_over(demand, [gpu.memory for gpu in wished]))
    return TooFewBigCards(demand, tuple(large)) if len(large) < demand.count else None


def why_not(ledger: Ledger, demand: Demand, held: Mapping[str, str] | None = None) -> Refusal | None:
    """Returns why it is not served now; None if it could be. `held` maps a held GPU to the demand's id."""
    never = impossible(ledger, demand)
    if never is not None:
        return never
    held = held or {}
    wished = [room for room in ledger.room() if demand.accepts(room.gpu)]
    enough = [room for room in wished if room.fits(demand)]
    open_ = [room for room in enough if room.gpu.uuid not in held]
    if len(open_) >= demand.count:
        return None
    healthy = [room for room in wished if room.gpu.healthy]
    largest = max(healthy, key=lambda room: _size_for(demand, room), default=None)
    has_memory = [room for room in healthy if room.free >= demand.per_card(room.gpu.memory)]
    lacks_compute = demand.compute is not None and not enough and has_memory
    most = max(has_memory, key=lambda room: room.compute_free) if lacks_compute else None
    return NoRoomNow(
        demand,
        largest=largest.gpu if largest else None,
        free=largest.free if largest else 0,
        enough=len(open_),
        compute=(most.compute_free, most.gpu) if most else None,
        held=tuple((room.gpu, held[room.gpu.uuid]) for room in enough if room.gpu.uuid in held)
        if len(enough) >= demand.count
        else (),
        outside=tuple((room.gpu, room.outside) for room in healthy if room.outside and not room.grants),
        sick=tuple(room.gpu for room in wished if not room.gpu.healthy),
    )


def _size_for(demand: Demand, room: Room) -> Fraction:
    """Returns the room's size in the terms of the demand: bytes, or the part of the GPU."""
    in_parts = demand.memory is not None and demand.memory.percent is not None
    return Fraction(room.free, max(1, room.gpu.memory) if in_parts else 1)


def _spread_over(demand: Demand, sizes: Sequence[int]) -> int | None:
    """Returns the least number of GPUs over which it would fit; None if there is none."""
    if demand.memory is None or demand.memory.bytes is None:
        return None
    for cards in range(demand.count + 1, len(sizes) + 1):
        part = -(-demand.memory.bytes // cards)
        if sum(size >= part for size in sizes) >= cards:
            return cards
    return None

"""Which cards a demand gets: a table of policies over one loop.

A policy only ranks; what may be taken at all is decided before it is asked. `frag` is the measure of
"Beware of Fragmentation" (USENIX ATC '23): free memory counts as lost, for each demand that is likely to
come, where that demand cannot use it; the card is taken where the expected loss grows least.
Scoring takes values and gives values, so that it serves one machine and each node of a cluster alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from cotenant.core.demand import Demand, Memory
from cotenant.core.grant import Share
from cotenant.core.ledger import Ledger, Room
from cotenant.core.refusal import (
    NoRoomNow,
    Refusal,
    TooBig,
    TooFewBigCards,
    TooFewCards,
    UnknownModel,
    UnknownUUID,
)

Typical = Sequence[tuple[float, Demand]]
"""The demands that are likely to come, with their weights. Whole numbers as weights keep ties exact."""

Key = tuple[float, ...]
Rank = Callable[[int, Room], Key]
"""Rank the card at a position, given its room after: the least wins, then the best fit, then the first."""

Policy = Callable[[Sequence[Room], Typical], Rank]
"""Looks at all rooms of one machine once and says how to rank each of them."""

DEFAULT_TYPICAL: Typical = (
    (2, Demand(Memory(percent=Fraction(25, 2)))),
    (3, Demand(Memory(percent=Fraction(25)))),
    (3, Demand(Memory(percent=Fraction(50)))),
    (4, Demand(whole=1)),
)
"""Until a history is known: shared and whole cards about equally often, as in published traces. Percentages,
so that it says something about cards of any size."""


def place(
    ledger: Ledger, demand: Demand, typical: Typical = DEFAULT_TYPICAL, closed: Collection[str] = frozenset()
) -> tuple[Share, ...] | None:
    """The shares it would be given, or None if there is no room now. Nothing is charged."""
    rooms = sorted(ledger.room(), key=lambda room: (room.gpu.index, room.gpu.uuid))
    taken = choose(rooms, demand, typical, closed)
    return None if taken is None else tuple(share_of(rooms[at], demand) for at in taken)


def choose(
    rooms: Sequence[Room], demand: Demand, typical: Typical, closed: Collection[str] = frozenset()
) -> tuple[int, ...] | None:
    """The positions of the cards to take on one machine, in the order of the rooms."""
    now, taken = list(rooms), list[int]()
    open_at = [at for at, room in enumerate(rooms) if room.gpu.uuid not in closed and fits(room, demand)]
    if len(open_at) < demand.count:
        return None
    for _ in range(demand.count):
        rank = POLICIES[demand.placement](now, typical)
        after = {at: room_after(now[at], share_of(now[at], demand)) for at in open_at}
        best = min(open_at, key=lambda at: (*rank(at, after[at]), *_best_fit(after[at]), at))
        now[best] = after[best]
        open_at.remove(best)
        taken.append(best)
    return tuple(sorted(taken))


def fits(room: Room, demand: Demand) -> bool:
    """Whether this card can take one part of the demand now."""
    if not demand.accepts(room.gpu):
        return False
    if demand.memory is None:
        return room.unused
    return room.free >= demand.per_card(room.gpu.memory) and room.compute_free >= (demand.compute or 0)


def share_of(room: Room, demand: Demand) -> Share:
    gpu = room.gpu
    return Share(gpu.uuid, demand.per_card(gpu.memory), demand.compute, whole=demand.memory is None)


def room_after(room: Room, share: Share) -> Room:
    """The same card once the share is charged."""
    return replace(
        room,
        free=0 if share.whole else room.free - share.memory,
        granted=room.granted + share.memory,
        compute_free=0 if share.whole else room.compute_free - (share.compute or 0),
        whole=share.whole,
        grants=room.grants + 1,
    )


def stranded(rooms: Sequence[Room], demand: Demand) -> int:
    """Free bytes of one machine that this demand cannot use: F_n(m) of the paper."""
    unfit = [room.free for room in rooms if not fits(room, demand)]
    return _lost(sum(room.free for room in rooms), sum(unfit), len(rooms) - len(unfit), demand)


def _lost(free: int, unfit: int, cards: int, demand: Demand) -> int:
    """Of so many free bytes; given those on cards where it does not fit, and on how many cards it does."""
    return free if cards < demand.count else unfit


def fragmentation(rooms: Sequence[Room], typical: Typical) -> float:
    """Expected free bytes of one machine that the next demand cannot use: F_n of the paper, not normalised."""
    return sum(weight * stranded(rooms, kind) for weight, kind in typical)


def coarse(increase: float, typical: Typical, card_bytes: int) -> int:
    """An increase of fragmentation in tenths of a card, below which best fit decides.

    The measure is an expectation over a rough guess of what will come, so a small difference says nothing, while
    a tight fit always helps: on a published trace this fills a cluster 1 % more than the exact figure does.
    """
    unit = sum(weight for weight, _ in typical) * card_bytes
    return int(10 * increase // unit) if unit else 0


def typical_of(demands: Iterable[Demand], cover: Fraction = Fraction(95, 100)) -> Typical:
    """The most frequent kinds of past demands that make up this part of them; the default if there are none."""
    kinds = Counter(replace(demand, placement="frag", uuids=()) for demand in demands)
    enough, typical = cover * kinds.total(), list[tuple[float, Demand]]()
    for demand, count in sorted(kinds.items(), key=lambda kind: (-kind[1], str(kind[0]))):
        if sum(weight for weight, _ in typical) >= enough:
            break
        typical.append((count, demand))
    return tuple(typical) or DEFAULT_TYPICAL


def _best_fit(after: Room) -> Key:
    """Least left over; of cards granted whole, the smallest."""
    return after.free, after.gpu.memory


def _binpack(_rooms: Sequence[Room], _typical: Typical) -> Rank:
    return lambda _at, _after: ()


def _spread(rooms: Sequence[Room], _typical: Typical) -> Rank:
    return lambda at, _after: (-rooms[at].free,)


def _frag(rooms: Sequence[Room], typical: Typical) -> Rank:
    """The increase of `fragmentation` by a change of one card, without going through all the others each time."""
    free = sum(room.free for room in rooms)
    card = max(room.gpu.memory for room in rooms)
    kinds = list[tuple[float, Demand, list[bool], int, int]]()
    for weight, kind in typical:
        fit = [fits(room, kind) for room in rooms]
        unfit = sum(room.free for room, does in zip(rooms, fit, strict=True) if not does)
        kinds.append((weight, kind, fit, unfit, sum(fit)))

    def rank(at: int, after: Room) -> Key:
        was = rooms[at].free
        increase: float = 0
        for weight, kind, fit, unfit, cards in kinds:
            does = fits(after, kind)
            unfit_after = unfit - (0 if fit[at] else was) + (0 if does else after.free)
            lost_after = _lost(free - was + after.free, unfit_after, cards - fit[at] + does, kind)
            increase += weight * (lost_after - _lost(free, unfit, cards, kind))
        return (coarse(increase, typical, card),)

    return rank


POLICIES: dict[str, Policy] = {"frag": _frag, "binpack": _binpack, "spread": _spread}


def impossible(ledger: Ledger, demand: Demand) -> Refusal | None:
    """Why this demand can never be served by these cards, even if all of them were free and healthy."""
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
    """Why it is not served now; None if it could be. `held` tells for whom a card is held (UUID to id)."""
    never = impossible(ledger, demand)
    if never is not None:
        return never
    held = held or {}
    wished = [room for room in ledger.room() if demand.accepts(room.gpu)]
    enough = [room for room in wished if fits(room, demand)]
    open_ = [room for room in enough if room.gpu.uuid not in held]
    if len(open_) >= demand.count:
        return None
    healthy = [room for room in wished if room.gpu.healthy]
    largest = healthy[0] if healthy else None
    has_memory = [room for room in healthy if room.free >= demand.per_card(room.gpu.memory)]
    lacks_compute = demand.compute is not None and not enough and has_memory
    most = max(has_memory, key=lambda room: room.compute_free) if lacks_compute else None
    return NoRoomNow(
        demand,
        largest=largest.gpu if largest else None,
        free=largest.free if largest else 0,
        asked=demand.per_card(largest.gpu.memory) if largest else 0,
        enough=len(open_),
        compute=(most.compute_free, most.gpu) if most else None,
        held=tuple((room.gpu, held[room.gpu.uuid]) for room in enough if room.gpu.uuid in held)
        if len(enough) >= demand.count
        else (),
        outside=tuple((room.gpu, room.outside) for room in healthy if room.outside and not room.grants),
        sick=tuple(room.gpu for room in wished if not room.gpu.healthy),
    )


def _spread_over(demand: Demand, sizes: Sequence[int]) -> int | None:
    """The least number of cards over which it would fit."""
    if demand.memory is None or demand.memory.bytes is None:
        return None
    for cards in range(demand.count + 1, len(sizes) + 1):
        part = -(-demand.memory.bytes // cards)
        if sum(size >= part for size in sizes) >= cards:
            return cards
    return None

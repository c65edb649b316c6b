"""Charges grants to GPUs: the one place that decides whether a demand fits.

A new charge is accepted only if it fits. What is charged stays charged: a GPU may become unhealthy, shrink,
or fill up from outside while a grant is on it. Then its room is zero, never negative.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from cotenant.core.demand import Demand
from cotenant.core.errors import DuplicateCharge, NoRoom, UnknownGrant
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.units import format_apart


@dataclass(frozen=True, slots=True)
class Room:
    """What one GPU has left for new charges, and where the rest is."""

    gpu: GPU
    free: int
    """Bytes that a new charge may take; 0 on an unhealthy GPU and on one granted whole."""
    granted: int
    outside: int
    """Bytes held by processes that no grant covers."""
    compute_free: int
    """Percent of compute that is free; 0 on an unhealthy GPU and on one granted whole."""
    whole: bool
    """Granted whole: it takes no other grant."""
    grants: int

    @property
    def unused(self) -> bool:
        """Whether nothing uses it, so that it can be granted whole."""
        return self.gpu.healthy and not self.grants and not self.outside

    def fits(self, demand: Demand) -> bool:
        """Whether this GPU can take one share of the demand now."""
        if not demand.accepts(self.gpu):
            return False
        if demand.memory is None:
            return self.unused
        return self.free >= demand.per_card(self.gpu.memory) and self.compute_free >= (demand.compute or 0)

    def after(self, share: Share) -> Room:
        """Returns the room that is left once the share is charged."""
        return Room(
            self.gpu,
            free=0 if share.whole else self.free - share.memory,
            granted=self.granted + share.memory,
            outside=self.outside,
            compute_free=0 if share.whole else self.compute_free - (share.compute or 0),
            whole=share.whole,
            grants=self.grants + 1,
        )


class Charged(Protocol):
    """A part of a GPU that is charged: a share, or what shows one."""

    @property
    def memory(self) -> int: ...

    @property
    def compute(self) -> int | None: ...

    @property
    def whole(self) -> bool: ...


def room_of(gpu: GPU, charged: Collection[Charged], outside: int) -> Room:
    """Works out what a GPU has left."""
    granted = sum(each.memory for each in charged)
    whole = any(each.whole for each in charged)
    taken = sum(each.compute or 0 for each in charged)
    is_open = gpu.healthy and not whole
    return Room(
        gpu=gpu,
        free=max(0, gpu.memory - granted - outside) if is_open else 0,
        granted=granted,
        outside=outside,
        compute_free=max(0, 100 - taken) if is_open else 0,
        whole=whole,
        grants=len(charged),
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all GPUs. They need not add up: a GPU may be granted beyond its size, or unhealthy."""

    cards: int
    memory: int
    granted: int
    outside: int
    free: int


class Ledger:
    """Keeps the charges of each GPU by the grant's id."""

    def __init__(
        self, gpus: Iterable[GPU], outside: Mapping[str, int] | None = None, grants: Iterable[Grant] = ()
    ) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._outside = {uuid: size for uuid, size in (outside or {}).items() if uuid in self._gpus}
        if any(size < 0 for size in self._outside.values()):
            raise ValueError("memory held outside grants cannot be negative")
        self._grants: dict[str, Grant] = {}
        self._shares: dict[str, dict[str, Share]] = {uuid: {} for uuid in self._gpus}
        self._rooms: dict[str, Room] = {}
        for grant in grants:
            self.load(grant)

    @property
    def gpus(self) -> tuple[GPU, ...]:
        return tuple(self._gpus.values())

    @property
    def grants(self) -> Mapping[str, Grant]:
        return dict(self._grants)

    def copy(self) -> Ledger:
        return Ledger(self._gpus.values(), self._outside, self._grants.values())

    def charge(self, grant: Grant) -> None:
        """Charges a new grant, or raises and changes nothing."""
        if grant.id in self._grants:
            raise DuplicateCharge(f"grant {grant.id} is charged already")
        for share in grant.shares:
            self._check(share, None)
        self._put(grant)

    def load(self, grant: Grant) -> None:
        """Charges a grant that exists already, whether or not it would fit today."""
        if grant.id in self._grants:
            raise DuplicateCharge(f"grant {grant.id} is charged already")
        self._put(grant)

    def release(self, id: str) -> bool:
        """Releases a grant; False if nothing was charged under this id. Idempotent."""
        grant = self._grants.pop(id, None)
        if grant is None:
            return False
        for share in grant.shares:
            self._shares.get(share.uuid, {}).pop(id, None)
            self._rooms.pop(share.uuid, None)
        return True

    def resize(self, id: str, shares: Iterable[Share]) -> Grant:
        """Resizes a grant, or raises and changes nothing. Shrinking is always possible."""
        before = self._grants.get(id)
        if before is None:
            raise UnknownGrant(f"no grant {id} is charged")
        after = Grant(id, tuple(shares))
        old = {share.uuid: share for share in before.shares}
        for share in after.shares:
            self._check(share, old.get(share.uuid))
        self.release(id)
        self._put(after)
        return after

    def room_on(self, uuid: str) -> Room:
        """Returns the room of one GPU, computed once after each change."""
        room = self._rooms.get(uuid)
        if room is None:
            shares = self._shares[uuid].values()
            room = self._rooms[uuid] = room_of(self._gpus[uuid], shares, self._outside.get(uuid, 0))
        return room

    def room(self) -> tuple[Room, ...]:
        """Lists the room of each GPU, the largest first."""
        rows = (self.room_on(uuid) for uuid in self._gpus)
        return tuple(sorted(rows, key=lambda row: (-row.free, row.gpu.index, row.gpu.uuid)))

    def largest_room(self) -> Room | None:
        """Returns the largest free room; None if there is no GPU."""
        return next(iter(self.room()), None)

    def free(self, uuid: str) -> int:
        return self.room_on(uuid).free

    def granted(self, uuid: str) -> int:
        return self.room_on(uuid).granted

    def outside(self, uuid: str) -> int:
        return self.room_on(uuid).outside

    def compute_free(self, uuid: str) -> int:
        return self.room_on(uuid).compute_free

    def is_whole(self, uuid: str) -> bool:
        return self.room_on(uuid).whole

    def totals(self) -> Totals:
        rows = self.room()
        return Totals(
            cards=len(rows),
            memory=sum(row.gpu.memory for row in rows),
            granted=sum(row.granted for row in rows),
            outside=sum(row.outside for row in rows),
            free=sum(row.free for row in rows),
        )

    def _put(self, grant: Grant) -> None:
        self._grants[grant.id] = grant
        for share in grant.shares:
            if share.uuid in self._shares:
                self._shares[share.uuid][grant.id] = share
                self._rooms.pop(share.uuid, None)

    def _check(self, share: Share, old: Share | None) -> None:
        """Raises unless the share fits in place of the old one. What does not grow is not checked."""
        if old is not None and _no_more(share, old):
            return
        if share.uuid not in self._gpus:
            raise NoRoom(f"there is no GPU {share.uuid} here")
        room = self.room_on(share.uuid)
        if not room.gpu.healthy:
            raise NoRoom(f"{room.gpu} is sick and takes no new grant")
        if share.whole:
            if share.memory != room.gpu.memory:
                raise ValueError(f"a whole {room.gpu} is {room.gpu.memory} bytes, not {share.memory}")
            if room.outside or room.grants > (old is not None):
                raise NoRoom(f"{room.gpu} is in use, so it cannot be granted whole")
            return
        wholes = sum(other.whole for other in self._shares[share.uuid].values())
        if wholes > (old is not None and old.whole):
            raise NoRoom(f"{room.gpu} is granted whole and shared with nobody")
        own = (old.memory, old.compute or 0) if old is not None else (0, 0)
        free = max(0, room.gpu.memory - room.outside - (room.granted - own[0]))
        if share.memory > max(free, own[0]):
            asked, found = format_apart(share.memory, free)
            raise NoRoom(f"{asked} asked, {found} free on {room.gpu}")
        compute = 100 - sum(other.compute or 0 for other in self._shares[share.uuid].values()) + own[1]
        if (share.compute or 0) > max(compute, own[1]):
            raise NoRoom(f"{share.compute}% of the compute asked, {max(0, compute)}% free on {room.gpu}")


def _no_more(share: Share, old: Share) -> bool:
    return (
        share.memory <= old.memory
        and (old.whole or (share.compute or 0) <= (old.compute or 0))
        and (old.whole or not share.whole)
    )

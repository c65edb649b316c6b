"""Whose end would open the room that a pod needs on a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.core.demand import Demand
from cotenant.core.ledger import Ledger
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.placing import best_fit, closed_to, put_all
from cotenant.kube.scheduling.wants import in_order


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that may be ended for the one that asks."""

    uid: str
    priority: int
    started: float


def victims(
    fleet: Fleet, node: str, uid: str, demands: Sequence[Demand], candidates: Sequence[Candidate]
) -> tuple[str, ...] | None:
    """Those whose end opens the room, none of them spare; () if it fits already, None if nothing would."""
    there = [one for one in candidates if (at := fleet.charged(one.uid)) is not None and at[0] == node]
    removed = {one.uid for one in there}
    closed = closed_to(fleet, node, uid)
    wanted = [best_fit(demand) for demand in in_order(demands)]

    def fits(gone: set[str]) -> bool:
        ledger = fleet.ledger(node).copy()
        for one in gone:
            charged = fleet.charged(one)
            for charge in charged[1].charges if charged else ():
                ledger.release(charge.id)
        return put_all(_rooms(ledger), wanted, (), closed) is not None

    if fits(set()):
        return ()
    if not fits(removed):
        return None
    for one in sorted(there, key=lambda one: (-one.priority, one.started, one.uid)):
        if fits(removed - {one.uid}):
            removed.remove(one.uid)
    return tuple(one.uid for one in there if one.uid in removed)


def _rooms(ledger: Ledger) -> list:  # type: ignore[type-arg]
    return sorted(ledger.room(), key=lambda room: (room.gpu.index, room.gpu.uuid))

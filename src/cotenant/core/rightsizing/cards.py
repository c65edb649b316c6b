"""Counts how many GPUs containers need if they ask for these figures: by the ledger and its placement.

All are placed anew on empty GPUs, the largest first, each where it leaves the least room: as a cluster
would be filled that was drained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant
from cotenant.core.ledger import Ledger
from cotenant.core.placement import place


@dataclass(frozen=True, slots=True)
class Asked:
    """What one running container asks for: bytes in all, over its GPUs; None for whole GPUs."""

    memory: int | None
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class Filled:
    used: int
    """GPUs that hold something."""
    left_over: int
    """Containers that found no room."""


def fill(machines: Sequence[Sequence[GPU]], asked: Sequence[Asked]) -> Filled:
    """Places all on these machines."""
    ledgers = [Ledger(gpus) for gpus in machines]
    left_over = 0
    for number, each in enumerate(sorted(asked, key=_size, reverse=True)):
        if not _placed(ledgers, _demand(each), str(number)):
            left_over += 1
    used = sum(room.grants > 0 for ledger in ledgers for room in ledger.room())
    return Filled(used, left_over)


def _size(asked: Asked) -> tuple[bool, float]:
    return asked.memory is None, 0 if asked.memory is None else asked.memory / asked.gpus


def _demand(asked: Asked) -> Demand:
    if asked.memory is None:
        return Demand(whole=asked.gpus)
    return Demand(memory=Memory(bytes=asked.memory), gpus=asked.gpus, placement="binpack")


def _placed(ledgers: Sequence[Ledger], demand: Demand, id: str) -> bool:
    """Charges it to the machine where the GPU that it takes is the fullest; of equals to the first."""
    best: tuple[int, Ledger, Grant] | None = None
    for ledger in ledgers:
        shares = place(ledger, demand)
        if shares is not None:
            left = sum(ledger.free(each.uuid) - each.memory for each in shares)
            if best is None or left < best[0]:
                best = left, ledger, Grant(id, shares)
            if left == 0:
                break
    if best is None:
        return False
    best[1].charge(best[2])
    return True

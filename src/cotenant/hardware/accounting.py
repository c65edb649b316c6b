"""Accounts for a GPU's memory in use: what each grant's holder uses, and what no grant covers.

A holder is whoever has a grant: a job on one machine, a pod on a node. What a holder uses up to its grant is
covered. Everything else in use is outside: memory of processes without a grant, memory beyond a grant (modes
observe and warn), and memory that no process answers for.

The invariant that the ledger relies on: `granted + outside` is never less than what is in use, so a new grant
never counts on memory that is not there. The only exception is `NOISE` on a GPU that nobody uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cotenant.hardware.nvml import CardProcess, CardReading

NOISE = 64 << 20
"""Bytes. Drivers report a few MiB in use on a GPU that nobody uses; it may still be granted whole."""


class GpuAccount(NamedTuple):
    """One GPU at one moment, in bytes."""

    used: Mapping[str, int]
    """By holder, also beyond its grant."""
    beyond: int
    """Held by processes without a grant, and by holders beyond theirs."""
    unexplained: int
    """In use, and no process answers for it."""
    strangers: tuple[CardProcess, ...] = ()
    """Processes of no holder."""

    @property
    def outside(self) -> int:
        """What no grant covers."""
        return self.beyond + self.unexplained

    def confirmed(self, before: int | None) -> GpuAccount:
        """With only as much unexplained memory as the look `before` found too; None if there was none. A
        process that allocates between two readings of one look makes it appear for a moment.
        """
        return self if before is None else self._replace(unexplained=min(self.unexplained, before))


def account(
    card: CardReading,
    owners: Mapping[int, str | None],
    granted: Mapping[str, int],
    counted: Mapping[str, int],
) -> GpuAccount:
    """Accounts for all memory in use on one GPU.

    `owners`: the holder of each process by pid, None for a process of no holder. A pid that is missing has
    ended: what it held is free, or soon will be. `granted`: bytes by holder on this GPU. `counted`: bytes by
    holder that its slot counts for processes of which the driver reports no figure (some virtual machines).
    """
    living = [process for process in card.processes if process.pid in owners]
    used = {holder: size for holder, size in counted.items() if size}
    for process in living:
        holder = owners[process.pid]
        if holder is not None and process.bytes is not None:
            used[holder] = used.get(holder, 0) + process.bytes
    strangers = tuple(process for process in living if owners[process.pid] is None)
    covered = sum(min(size, granted.get(holder, 0)) for holder, size in used.items())
    ended = sum(process.bytes or 0 for process in card.processes if process.pid not in owners)
    of_strangers = sum(process.bytes or 0 for process in strangers)
    twice = _counted_twice(card.used - ended, sum(used.values()), of_strangers, sum(counted.values()))
    if twice == of_strangers and not any(process.bytes is None for process in strangers):
        strangers = ()
    beyond = sum(used.values()) - covered + of_strangers - twice
    unexplained = max(0, card.used - ended - covered - beyond)
    if unexplained <= NOISE and not granted and not beyond and not strangers:
        unexplained = 0
    return GpuAccount(used, beyond, unexplained, strangers)


def _counted_twice(in_use: int, of_holders: int, of_strangers: int, counted: int) -> int:
    """Returns the bytes that slots count and that processes of no holder hold as well: those of a container
    inside a grant. A daemon has started it, so it descends from no holder, and its slot knows it by the pid
    of its own namespace. That shows as more memory than there is in use. Never more than that is taken off,
    so grants and memory outside still add up to all that is in use.
    """
    return max(0, min(of_holders + of_strangers - in_use, of_strangers, counted))

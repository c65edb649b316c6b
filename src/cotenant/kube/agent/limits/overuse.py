"""Decides which containers hold more memory than they were granted, and for how long.

What processes hold is the driver's figure, contexts included: it is right whatever a program is linked with.
A container that is over for less than the grace is not reported: a framework may give back at once what it
took.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cotenant.core.units import format_bytes
from cotenant.kube.agent.cards.survey import PodProcess
from cotenant.kube.agent.slots.node_slots import NodeSlot

TOLERANCE = 16 << 20
"""Bytes beyond a limit that do not count: drivers differ in what they add to a context."""
_MOST_NAMED = 4
"""Processes that a message names."""


class Overuse(NamedTuple):
    """What a container holds of one GPU, where that is more than its limit."""

    uuid: str
    limit: int
    used: int
    processes: tuple[PodProcess, ...]
    """The largest first."""

    @property
    def over(self) -> int:
        return self.used - self.limit


def overuses(
    slot: NodeSlot, processes: Mapping[str, Sequence[PodProcess]], counted: Mapping[str, int]
) -> tuple[Overuse, ...]:
    """`processes` by GPU, as the driver reports them; `counted`: bytes by GPU that the slot counts, for
    processes of which the driver reports none.
    """
    found = []
    for card in slot.limits.cards:
        of_gpu = processes.get(card.uuid, ())
        used = sum(each.bytes or 0 for each in of_gpu)
        if any(each.bytes is None for each in of_gpu):
            used = max(used, counted.get(card.uuid, 0))
        if used > card.bytes + TOLERANCE:
            largest = sorted(of_gpu, key=lambda each: -(each.bytes or 0))
            found.append(Overuse(card.uuid, card.bytes, used, tuple(largest)))
    return tuple(found)


@dataclass
class OveruseClock:
    """Remembers since when containers are over. Times are seconds of a monotonic clock."""

    grace: float
    _since: dict[str, float] = field(default_factory=dict, init=False)
    _under: dict[str, float] = field(default_factory=dict, init=False)
    """Since when one that was reported is not over any more."""
    _reported: dict[str, tuple[Overuse, ...]] = field(default_factory=dict, init=False)

    def look(
        self, found: Mapping[str, tuple[Overuse, ...]], now: float, known: Container[str] = ()
    ) -> dict[str, tuple[Overuse, ...]]:
        """Takes what is over now, by slot; returns what has been for longer than the grace. It counts until
        the container has been under its limit for as long: one that goes up and down is over.
        `known`: slots that the agent before this one has reported.
        """
        self._since = {key: self._since.get(key, now) for key, over in found.items() if over}
        for key, at in self._since.items():
            self._under.pop(key, None)
            if now - at >= self.grace or key in self._reported or key in known:
                self._reported[key] = found[key]
        for key in self._reported.keys() - self._since.keys():
            if key not in found or now - self._under.setdefault(key, now) >= self.grace:
                self._reported.pop(key)
                self._under.pop(key, None)
        return dict(self._reported)

    @property
    def waits(self) -> bool:
        """Whether one is over that is not reported yet, or was reported and is not over now: look soon."""
        return bool(self._since.keys() ^ self._reported.keys())


def named(processes: Sequence[PodProcess], commands: Mapping[int, str]) -> str:
    """Names processes by pid, command and bytes."""
    texts = [
        f"process {each.pid} ({commands.get(each.pid, '?')}){_size(each)}" for each in processes[:_MOST_NAMED]
    ]
    more = len(processes) - _MOST_NAMED
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _size(process: PodProcess) -> str:
    return "" if process.bytes is None else f" with {format_bytes(process.bytes)}"

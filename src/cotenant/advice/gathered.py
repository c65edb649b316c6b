"""Describes what a source of samples found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cotenant.core.rightsizing.groups import Group, newest_versions
from cotenant.core.rightsizing.history import Track

OVERLAP = 12
"""Buckets: a version whose containers ran until an hour before the end counts as running."""

Progress = Callable[[float, str], None]
"""Told how much is done, from 0 to 1, and what is being done."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows that could not be used, for one reason."""

    why: str
    rows: int
    line: int | None
    """The first of them; None if that is not known."""

    def __str__(self) -> str:
        where = f", the first in line {self.line}" if self.line is not None else ""
        return f"{self.why}: {self.rows} {'row' if self.rows == 1 else 'rows'}{where}"


@dataclass(frozen=True, slots=True)
class Gathered:
    """Histories, ready for advice. They are not in its repr, which asyncio makes of every result."""

    groups: tuple[Group, ...] = field(repr=False)
    step: float
    """Seconds of a bucket."""
    source: str
    """For people: a file's name, a server's address."""
    starts_are_seen: bool
    """Whether the source shows cold starts."""
    samples: int
    past: tuple[Group, ...] = field(default=(), repr=False)
    """Versions that do not run any more: nothing is advised for them, but they are learned from."""
    rejected: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    """What people should know about the data; sentences."""
    cards: Mapping[str, int] = field(default_factory=dict)
    """Sizes in bytes of GPUs that the source knows, by UUID."""
    whole: bool = False
    """Whether containers hold whole GPUs now, or take turns on them."""
    began: float | None = None
    """Unix time from which on the source has samples of anything: what is there from then on did not start
    then.
    """
    live: bool = True
    """Whether the last instances of the data run at its end, so that what they ask for can be added up."""


def from_prometheus(
    source: str, step: float, described: Sequence[Group], tracks: Iterable[Track]
) -> Gathered:
    """Advice is for the newest versions; the others are learned from. Such series show cold starts."""
    running, past = newest_versions(described, OVERLAP)
    samples = sum(len(each.buckets) for each in tracks)
    return Gathered(tuple(running), step, source, starts_are_seen=True, samples=samples, past=tuple(past))


class Rejections:
    """Counts rows that cannot be used, by reason."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int | None]] = {}

    def add(self, why: str, line: int | None, rows: int = 1) -> None:
        before, first = self._found.get(why, (0, line))
        self._found[why] = before + rows, first

    def absorb(self, other: Rejections, lines_before: int) -> None:
        """Adds those of a later part of the file."""
        for why, (rows, line) in other._found.items():
            self.add(why, None if line is None else line + lines_before, rows)

    def all(self) -> tuple[Rejected, ...]:
        """Lists them, the most frequent first."""
        found = [Rejected(why, rows, line) for why, (rows, line) in self._found.items()]
        return tuple(sorted(found, key=lambda each: (-each.rows, each.why)))

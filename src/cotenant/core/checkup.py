"""Examines, repairs and examines again: the loop behind `cotenant doctor`, for one machine and for a cluster.

A finding counts only if two looks agree on it, since jobs and pods start and end meanwhile. What a repair
says it did is not believed either: the next look shows whether the finding is gone.

The loop is a coroutine, because a cluster is read concurrently. It needs no event loop of its own:
`run_synchronously` runs it for one machine, where no step suspends. So Ctrl-C works as usual there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cotenant.core.errors import CotenantError
from cotenant.core.finding import Finding, Outcome

F = TypeVar("F")
"""The facts that checks examine."""
R = TypeVar("R")
"""The function that repairs one finding."""
T = TypeVar("T")

ROUNDS = 3
"""The most rounds of repairs: one repair may reveal the next fault."""


class NotRepaired(CotenantError):
    """It could not be repaired, or there is nothing left to repair."""


@dataclass(frozen=True)
class Subject(Generic[F, R]):
    """Holds the checks and the repairs of one thing that doctor examines."""

    checks: tuple[Callable[[F], Iterable[Finding]], ...]
    """In the order in which their findings are best repaired."""
    repairs: Mapping[str, R] = field(default_factory=dict)
    """By the names that findings give them."""
    lasting: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which findings of a kind must last, where the parts repair it themselves in that time."""


@dataclass(frozen=True)
class Checkup(Generic[F, R]):
    """Reads the facts of a machine or a cluster, checks them and repairs."""

    subjects: Sequence[Subject[F, R]]
    look: Callable[[], Awaitable[F]]
    """Gathers the facts and changes nothing."""
    repair: Callable[[R, F, Finding], Awaitable[str]]
    """Calls a repair with the facts of the last look. Returns what was done; raises CotenantError or OSError
    if that failed.
    """
    wait: Callable[[float], Awaitable[None]]
    second_look: float
    """Seconds between the two looks that must agree."""

    async def run(self, *, fix: bool) -> tuple[Outcome, ...]:
        facts, current = await self._diagnose()
        seen = {finding.key: finding for finding in current}
        done: dict[tuple[str, str], str] = {}
        for _round in range(ROUNDS if fix else 0):
            todo = [finding for finding in current if finding.repair and finding.key not in done]
            if not todo:
                break
            for finding in todo:
                done[finding.key] = await self._try_repair(facts, finding)
            facts, current = await self._diagnose()
            seen.update((finding.key, finding) for finding in current)
        left = {finding.key for finding in current}
        return tuple(Outcome(finding, key in left, done.get(key)) for key, finding in seen.items())

    async def _diagnose(self) -> tuple[F, tuple[Finding, ...]]:
        facts = await self.look()
        first = {finding.key for finding in findings(self.subjects, facts)}
        if not first:
            return facts, ()
        lasting = {kind: time for subject in self.subjects for kind, time in subject.lasting.items()}
        await self.wait(max(lasting.get(kind, self.second_look) for kind, _ in first))
        facts = await self.look()
        return facts, tuple(each for each in findings(self.subjects, facts) if each.key in first)

    async def _try_repair(self, facts: F, finding: Finding) -> str:
        repairs = {name: repair for subject in self.subjects for name, repair in subject.repairs.items()}
        try:
            return await self.repair(repairs[finding.repair or ""], facts, finding)
        except (CotenantError, OSError) as error:
            return f"could not: {error}"


def findings(subjects: Iterable[Subject[F, R]], facts: F) -> tuple[Finding, ...]:
    return tuple(found for subject in subjects for check in subject.checks for found in check(facts))


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends, and returns its result."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("the coroutine waits for an event loop")

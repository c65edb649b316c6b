"""Gives parts their terms: all begin in order, then the leader's parts run until the term is over.

This is the one way by which leadership reaches a part. A term that cannot begin is retried while the lease is
held, and `waiting` says which part it waits for and why. A leader's part that fails ends the term: this
server withdraws without releasing the lease, so the next leader takes it for one that died, and fences what
may still be on its way to the API server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from cotenant.core.errors import CotenantError
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.election import Election
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Part, Term
from cotenant.kube.parts.running import Failures, PartFailed, run_all
from cotenant.observe.state import TermState

log = get_logger(__name__)

SHORTEST_WITHDRAWAL = 20.0
LONGEST_WITHDRAWAL = 300.0
"""Seconds without competing for the lease after a leader's part failed: longer than a lease lasts, so that
another server leads if there is one.
"""
CALM = 600.0
"""Seconds. A failure after so long a term is a new one: its pause is the shortest again."""


@dataclass
class Leadership:
    """`run()` leads the parts through their terms until it is cancelled."""

    election: Election
    failures: Failures
    parts: Sequence[Part] = ()
    """Set before `run`: parts are made with this object."""
    begun: Callable[[Term], None] = lambda _: None
    """Called when all parts have begun a term."""
    clock: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random, repr=False)

    term: Term | None = field(default=None, init=False)
    """The term that this server holds."""
    _since: float = field(default=0.0, init=False)
    _begun: bool = field(default=False, init=False)
    _beginning: Part | None = field(default=None, init=False)
    _trouble: str | None = field(default=None, init=False)

    def must_lead(self, for_seconds: float = 0.0) -> None:
        self.election.must_lead(for_seconds)

    def led(self) -> bool:
        return self.election.led()

    def leads(self, term: Term) -> bool:
        return self.election.leading() and self.election.term == term.number

    def not_serving(self) -> str | None:
        if not self.election.leading():
            return f"this server does not lead: {self.election.holder or 'no server'} does"
        if self.term is None or self.term.number != self.election.term or not self._begun:
            return "this server leads and has not yet read the cluster's grants"
        return None

    def waiting(self) -> str | None:
        """Says which part keeps the term from beginning, and why; None where there is no such term."""
        if not self.election.leading():
            return None
        if self.term is None or not self.leads(self.term):
            return "leadership: the parts of the last term have not stopped yet"
        if self._begun:
            return None
        part = self._beginning
        if part is None:
            return "the term has only just begun"
        return f"{part.name}: {self._trouble or self.failures.reason(part) or 'it is beginning'}"

    def waiting_seconds(self) -> float:
        """How long the term has not begun for; 0 where none waits."""
        return 0.0 if self.waiting() is None else self.clock() - self._since

    def state(self) -> TermState | None:
        """Reports the term that this server holds, for /state."""
        if self.term is None:
            return None
        return TermState(self.term.number, self._begun, self.waiting())

    async def run(self) -> None:
        backoff = Backoff(SHORTEST_WITHDRAWAL, LONGEST_WITHDRAWAL, self.random)
        while True:
            number = await self.election.wait_until_leading()
            term = Term(number, self.election.inherited)
            self.term, self._since, self._begun, self._beginning = term, self.clock(), False, None
            try:
                await self._hold(term)
            except PartFailed as failure:
                if self._begun and self.clock() - self._since > CALM:
                    backoff.reset()
                pause = max(SHORTEST_WITHDRAWAL, backoff.next())
                self.election.withdraw(pause)
                log.error(  # noqa: TRY400 - the part's own failure is logged already
                    "leadership given up", part=failure.part, term=number, seconds=round(pause)
                )
            else:
                backoff.reset()
                log.warning("term is over", term=number)
            finally:
                self.term = None

    async def _hold(self, term: Term) -> None:
        lead = asyncio.create_task(self._lead(term))
        over = asyncio.create_task(self.election.wait_until_over(term.number))
        try:
            await asyncio.wait({lead, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (lead, over):
                task.cancel()
            await asyncio.wait({lead, over})
        if not lead.cancelled():
            lead.result()

    async def _lead(self, term: Term) -> None:
        for part in self.parts:
            await self._begin(part, term)
        self._begun = True
        self.election.took_over(term.number)
        self.begun(term)
        self.failures.in_term.clear()
        leaders = [part for part in self.parts if part.leader_only]
        await run_all(
            [("leadership", _for_ever()), *((part.name, part.run()) for part in leaders)],
            self.failures.note_in_term,
        )

    async def _begin(self, part: Part, term: Term) -> None:
        self._beginning, self._trouble = part, None
        backoff = Backoff(0.2, 5.0, self.random)
        while True:
            try:
                await part.begin(term)
            except CotenantError as error:
                if self._trouble is None:
                    log.warning("term cannot begin", term=term.number, part=part.name, error=str(error))
                self._trouble = str(error)
            except Exception as error:
                log.exception("term cannot begin", term=term.number, part=part.name)
                failure = PartFailed(part.name, f"failed to begin term {term.number}: {error!r}")
                self.failures.note_in_term(failure)
                raise failure from error
            else:
                return
            await asyncio.sleep(backoff.next())


async def _for_ever() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    raise asyncio.CancelledError


class Alone:
    """Stands for leadership in a process that has no leader, such as an agent."""

    def must_lead(self, for_seconds: float = 0.0) -> None: ...

    def leads(self, term: Term) -> bool:
        del term
        return True

    def led(self) -> bool:
        return True

    def not_serving(self) -> str | None:
        return None

"""Leadership reaches parts in one way: all begin in order, the leader's run, and a failure ends the term."""

import asyncio
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from cotenant.core.errors import CotenantError
from cotenant.kube.parts.leadership import SHORTEST_WITHDRAWAL, Leadership
from cotenant.kube.parts.part import Part, Term
from cotenant.kube.parts.running import Failures, PartFailed, supervise
from cotenant.observe.exposition import Registry

pytestmark = pytest.mark.asyncio


class Election:
    """Plays the lease: a test gives and takes it."""

    def __init__(self):
        self.term, self.holder, self.inherited = 0, "", False
        self.held, self.withdrawn, self._turned = False, [], asyncio.Event()
        self.taken_over = []

    def leading(self, for_seconds=0.0):
        return self.held

    def give(self, *, inherited=False):
        self.term, self.held, self.inherited = self.term + 1, True, inherited
        self._turned.set()

    def take(self):
        self.held = False
        self._turned.set()

    def withdraw(self, seconds):
        self.withdrawn.append(seconds)
        self.take()

    def took_over(self, term):
        self.taken_over.append(term)

    async def _until(self, held):
        while self.held is not held:
            self._turned.clear()
            await self._turned.wait()

    async def wait_until_leading(self):
        await self._until(True)
        return self.term

    async def wait_until_over(self, term):
        await self._until(False)


class Told(Part):
    """Writes down what happens to it."""

    def __init__(self, name, said, *, leader=False):
        self.name, self.said, self.leader_only = name, said, leader
        self.fails = self.ends = None

    async def begin(self, term: Term):
        if self.fails is not None:
            raise self.fails
        self.said.append(f"{self.name} begins {term.number}")

    async def run(self):
        self.said.append(f"{self.name} runs")
        try:
            if self.ends is not None:
                raise self.ends
            await asyncio.Event().wait()
        finally:
            self.said.append(f"{self.name} stops")


@asynccontextmanager
async def leadership(*parts):
    election = Election()
    made = Leadership(election, Failures(Registry()), parts, random=Random(1))
    task = asyncio.create_task(made.run())
    try:
        yield election, made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_all_parts_begin_in_order_before_the_leaders_run():
    said = []
    async with leadership(Told("a", said), Told("b", said, leader=True), Told("c", said)) as (election, it):
        assert it.not_serving() == "this server does not lead: no server does"
        election.give()
        await settle()
        assert said == ["a begins 1", "b begins 1", "c begins 1", "b runs"]
        assert it.not_serving() is None
        election.take()
        await settle()
        assert said[-1] == "b stops"
        assert it.not_serving() is not None
        election.give()
        await settle()
        assert said[-4:] == ["a begins 2", "b begins 2", "c begins 2", "b runs"]


async def test_nothing_is_served_until_all_have_begun_and_the_reason_is_said():
    said = []
    slow = Told("ledger", said)
    slow.fails = CotenantError("pods: not listed yet")
    async with leadership(slow, Told("line", said, leader=True)) as (election, it):
        election.give()
        await settle()
        assert it.not_serving() == "this server leads and has not yet read the cluster's grants"
        assert it.waiting() == "ledger: pods: not listed yet"
        assert it.waiting_seconds() >= 0
        assert (it.state().number, it.state().begun) == (1, False)
        assert election.taken_over == [], "stopped now, the next leader has to do it"
        slow.fails = None
        await asyncio.sleep(0.6)  # longer than the first pauses between tries
        assert it.not_serving() is None
        assert it.waiting() is None
        assert said == ["ledger begins 1", "line begins 1", "line runs"]
        assert election.taken_over == [1]


@pytest.mark.parametrize(("when", "leader"), [("begin", True), ("begin", False), ("run", True)])
async def test_a_part_that_fails_gives_leadership_up_and_is_named(when, leader):
    said = []
    bad, good = Told("bad", said, leader=leader), Told("good", said, leader=True)
    error = RuntimeError("broken")
    if when == "begin":
        bad.fails = error
    else:
        bad.ends = error
    async with leadership(good, bad) as (election, it):
        election.give()
        await settle()
        (pause,) = election.withdrawn
        assert pause >= SHORTEST_WITHDRAWAL
        assert "RuntimeError('broken')" in it.failures.in_term["bad"]
        assert "good" not in it.failures.in_term
        assert it.failures.why == {}, "the process goes on"
        assert when == "begin" or "good stops" in said
        bad.fails = bad.ends = None
        election.give()
        await settle()
        assert it.not_serving() is None
        assert it.failures.in_term == {}, "a term that runs clears what failed before"


async def test_a_term_that_ends_while_it_begins_begins_nothing_more():
    said = []
    stuck = Told("stuck", said)
    stuck.fails = CotenantError("no answer")
    async with leadership(stuck, Told("after", said, leader=True)) as (election, it):
        election.give()
        await settle()
        election.take()
        await settle()
        stuck.fails = None
        await asyncio.sleep(0.3)
        assert said == []
        assert it.waiting() is None


async def test_parts_of_the_last_term_that_do_not_stop_are_reported():
    said, hold = [], asyncio.Event()
    slow = Told("slow", said, leader=True)

    async def run():
        try:
            await asyncio.Event().wait()
        finally:
            await hold.wait()

    slow.run = run
    async with leadership(slow) as (election, it):
        election.give()
        await settle()
        election.take()
        await settle()
        election.give()
        await settle()
        assert it.waiting() == "leadership: the parts of the last term have not stopped yet"
        hold.set()
        await settle()
        assert it.not_serving() is None


async def test_a_part_that_is_cancelled_by_what_it_awaits_has_failed():
    async def cancelled():
        raise asyncio.CancelledError

    noted = []
    with pytest.raises(PartFailed, match="part odd was cancelled by something that it awaited"):
        await supervise("odd", cancelled(), noted.append)
    assert [failure.part for failure in noted] == ["odd"]

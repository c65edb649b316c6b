"""Elections in virtual time, on a ballot that delays, loses and repeats: at no moment do two believe to lead."""

import asyncio
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pytest
from kube import virtual_time

from cotenant.core.errors import BadInput
from cotenant.kube.api import election as lease_module
from cotenant.kube.api.election import Election, LeaseSettings, NotLeading, unique_identity
from cotenant.kube.api.errors import AlreadyExists, Conflict, NotFound, ServerFailed, Unreachable
from cotenant.kube.api.objects import Lease
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import LEASES

SETTINGS = LeaseSettings(name="server", namespace="cotenant")
FIELDS = {
    "holderIdentity": "holder_identity",
    "leaseDurationSeconds": "lease_duration_seconds",
    "renewTime": "renew_time",
    "acquireTime": "acquire_time",
    "leaseTransitions": "lease_transitions",
}


@dataclass
class Ballot:
    """The part of an API server that an election needs, with every delay and loss that a network can have."""

    random: Random
    faults: bool = False
    down: bool = False
    slow_answers: float = 0.0
    happened: float = 0.0
    """When the last write was carried out."""
    spec: dict | None = field(default_factory=dict)
    versions: itertools.count = field(default_factory=lambda: itertools.count(1))
    version: int = 0
    uid: int = 0

    async def get(self, resource, name, namespace, *, within):
        return await self._carry_out(lambda: self._current(), within)

    async def create(self, resource, body, namespace, *, within):
        return await self._carry_out(lambda: self._create(body), within)

    async def merge_patch(self, resource, name, changes, namespace, *, guard, within):
        return await self._carry_out(lambda: self._patch(changes["spec"], guard), within)

    def delete(self):
        self.spec = None

    async def _carry_out(self, act, within):
        """The request travels, happens, and its answer travels back; a caller who has lost patience does not undo it."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def happen():
            try:
                result, error = act(), None
            except Exception as problem:
                result, error = None, problem
            loop.call_later(self._delay() + self.slow_answers, reach, result, error)

        def reach(result, error):
            if not answer.done():
                answer.set_exception(error) if error else answer.set_result(result)

        if self.down:
            await asyncio.sleep(0.01)
            raise Unreachable("refused")
        if self.faults and self.random.random() < 0.05:
            raise ServerFailed("broken", uncertain=True)
        loop.call_later(self._delay(), happen)
        try:
            return await asyncio.wait_for(answer, within)
        except TimeoutError:
            raise Unreachable("late", uncertain=True) from None

    def _delay(self):
        if self.faults and self.random.random() < 0.15:
            return self.random.expovariate(1 / 4)
        return self.random.random() * 0.02

    def _current(self):
        if self.spec is None:
            raise NotFound("none")
        given = {
            FIELDS[name]: value
            for name, value in self.spec.items()
            if value is not None and "Time" not in name
        }
        made = LEASES.decode(b'{"metadata":{"uid":"u%d","resourceVersion":"%d"}}' % (self.uid, self.version))
        return Lease(metadata=made.metadata, spec=type(made.spec)(**given))

    def _create(self, body):
        if self.spec is not None:
            raise AlreadyExists("there")
        self.spec, self.version, self.uid = dict(body["spec"]), next(self.versions), next(self.versions)
        return self._current()

    def _patch(self, spec, guard):
        if guard != Guard.of(self._current()):
            raise Conflict("another state")
        self.spec, self.version = {**self.spec, **spec}, next(self.versions)
        self.happened = asyncio.get_running_loop().time()
        return self._current()


def candidate(ballot, name, *, rate=1.0, settings=SETTINGS, seed=0):
    """One whose clock runs at its own speed and from its own beginning."""
    loop = asyncio.get_running_loop()
    offset = Random(name).random() * 1e6
    return Election(
        ballot,
        settings,
        identity=name,
        clock=lambda: offset + loop.time() * rate,
        random=Random(seed),
        wall=lambda: datetime(2030, 1, 1, tzinfo=UTC),
    )


async def led_by(*elections, within=60.0):
    ends = asyncio.get_running_loop().time() + within
    while not any(e.leading() for e in elections):
        assert asyncio.get_running_loop().time() < ends, "nobody leads"
        await asyncio.sleep(0.05)
    (leader,) = [e for e in elections if e.leading()]
    return leader


async def stop(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_an_unheld_lease_is_taken_at_once_and_given_back_at_the_end():
    async def story():
        ballot = Ballot(Random(1))
        one, two = candidate(ballot, "one"), candidate(ballot, "two")
        running = asyncio.create_task(one.run())
        assert await one.wait_until_leading() == 1
        assert asyncio.get_running_loop().time() < 1
        assert ballot.spec["holderIdentity"] == "one"
        assert ballot.spec["leaseDurationSeconds"] == 10
        waiting = asyncio.create_task(two.run())
        await asyncio.sleep(30)
        assert one.leading()
        assert not two.leading()
        assert two.holder == "one"
        with pytest.raises(NotLeading, match="lease cotenant/server: not ours now, held by one"):
            two.must_lead()
        await stop(running)
        assert not one.leading()
        began = asyncio.get_running_loop().time()
        assert await two.wait_until_leading() == 2
        assert asyncio.get_running_loop().time() - began < 1.5
        await stop(waiting)
        assert ballot.spec["holderIdentity"] is None

    virtual_time.run(story())


def test_a_leader_that_is_gone_is_followed_after_the_leases_duration():
    async def story():
        ballot = Ballot(Random(1))
        ballot.spec = {"holderIdentity": "dead", "leaseDurationSeconds": 10, "leaseTransitions": 6}
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        assert await one.wait_until_leading() == 7
        assert 10 < asyncio.get_running_loop().time() < 11.5
        await stop(running)

    virtual_time.run(story())


def test_one_who_withdraws_stops_at_once_and_is_followed_like_one_that_died():
    async def story():
        loop, ballot = asyncio.get_running_loop(), Ballot(Random(1))
        one, two = candidate(ballot, "one"), candidate(ballot, "two")
        tasks = [asyncio.create_task(one.run())]
        await one.wait_until_leading()
        tasks.append(asyncio.create_task(two.run()))
        ballot.slow_answers = 0.5
        await asyncio.sleep(2.2)  # a renewal is under way
        one.withdraw(60)
        withdrawn = loop.time()
        assert not one.leading()
        await two.wait_until_leading()
        assert loop.time() - withdrawn > 8
        assert two.inherited, "it fences what the one before may have sent"
        assert not one.leading()
        await stop(tasks.pop())
        assert loop.time() - withdrawn < 60
        assert not one.leading(), "it does not compete yet"
        await asyncio.sleep(70)
        assert one.leading()
        await stop(*tasks)

    virtual_time.run(story())


def test_one_who_has_withdrawn_and_ends_does_not_release_the_lease():
    async def story():
        ballot = Ballot(Random(1))
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        await one.wait_until_leading()
        one.withdraw(60)
        await stop(running)
        assert ballot.spec["holderIdentity"] == "one"

    virtual_time.run(story())


@pytest.mark.parametrize("took_over", [True, False])
def test_an_inherited_lease_is_released_only_by_one_who_took_over_what_was_left_behind(took_over):
    async def story():
        ballot = Ballot(Random(1))
        ballot.spec = {"holderIdentity": "dead", "leaseDurationSeconds": 10, "leaseTransitions": 6}
        one, two = candidate(ballot, "one"), candidate(ballot, "two")
        running = asyncio.create_task(one.run())
        term = await one.wait_until_leading()
        one.took_over(term if took_over else term - 1)
        await stop(running)
        assert ballot.spec["holderIdentity"] == (None if took_over else "one")
        running = asyncio.create_task(two.run())
        await two.wait_until_leading()
        assert two.inherited is not took_over
        await stop(running)

    virtual_time.run(story())


def test_one_whose_lease_is_over_and_ends_does_not_release_it_after_all():
    """Its writes were in doubt when it lost the lease, and still are."""

    async def story():
        ballot = Ballot(Random(1))
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        term = await one.wait_until_leading()
        ballot.down = True
        await one.wait_until_over(term)
        ballot.down = False
        await stop(running)
        assert ballot.spec["holderIdentity"] == "one"

    virtual_time.run(story())


def test_the_duration_that_counts_is_the_one_the_holder_wrote():
    async def story():
        ballot = Ballot(Random(1))
        ballot.spec = {"holderIdentity": "dead", "leaseDurationSeconds": 40}
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        await one.wait_until_leading()
        assert 40 < asyncio.get_running_loop().time() < 41.5
        await stop(running)

    virtual_time.run(story())


def test_a_leader_cut_off_from_the_server_stops_believing_before_anybody_may_follow():
    async def story():
        loop = asyncio.get_running_loop()
        near, far = Ballot(Random(1)), None
        one = candidate(near, "one")
        running = asyncio.create_task(one.run())
        term = await one.wait_until_leading()
        await asyncio.sleep(20)
        far = Ballot(Random(2), spec=near.spec, version=near.version, uid=near.uid)
        two = candidate(far, "two")
        near.down = True  # the second one still reaches the server
        cut = loop.time()
        waiting = asyncio.create_task(two.run())
        await one.wait_until_over(term)
        lost = loop.time()
        await two.wait_until_leading()
        assert lost - cut <= 8.0
        assert loop.time() - lost >= 2.0
        await stop(running, waiting)

    virtual_time.run(story())


def test_a_leader_counts_from_before_it_asked_not_from_the_answer():
    async def story():
        ballot = Ballot(Random(1), slow_answers=2.0)
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        term = await one.wait_until_leading()
        ballot.down = True
        await one.wait_until_over(term)
        assert asyncio.get_running_loop().time() <= ballot.happened + 8.0
        await stop(running)

    virtual_time.run(story())


def test_a_leader_can_be_asked_whether_there_is_time_for_something():
    async def story():
        ballot = Ballot(Random(1))
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        await one.wait_until_leading()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert one.leading(for_seconds=5.0)  # enough for a bind
            assert not one.leading(for_seconds=8.1)
        await stop(running)

    virtual_time.run(story())


def test_a_stopped_leader_knows_on_waking_that_its_time_is_over():
    """Nothing of it ran meanwhile, so no timer and no task can have told it: only the clock can."""

    async def story():
        loop = asyncio.get_running_loop()
        ballot, slept = Ballot(Random(1)), [0.0]
        one = candidate(ballot, "one")
        clock = one.clock
        one.clock = lambda: clock() + slept[0]
        running = asyncio.create_task(one.run())
        term = await one.wait_until_leading()
        slept[0] = 7.9 - loop.time() % 0.1
        assert one.leading() or slept[0] > 7.8
        slept[0] = 30.0
        assert not one.leading()
        with pytest.raises(NotLeading):
            one.must_lead()
        await one.wait_until_over(term)
        assert (
            await one.wait_until_leading() == term + 1
        )  # nobody else was there; what it knew is void all the same
        await stop(running)

    virtual_time.run(story())


def test_somebody_who_edits_the_lease_does_not_end_a_term():
    async def story():
        ballot = Ballot(Random(1))
        one = candidate(ballot, "one")
        running = asyncio.create_task(one.run())
        term = await one.wait_until_leading()
        for _ in range(20):
            ballot.version = next(ballot.versions)
            await asyncio.sleep(1)
            assert one.leading()
        assert one.term == term
        await stop(running)

    virtual_time.run(story())


def test_a_lease_that_is_not_there_is_made_and_its_unknown_holder_waited_for():
    async def story():
        ballot = Ballot(Random(1), spec=None)
        one, two = candidate(ballot, "one"), candidate(ballot, "two")
        tasks = [asyncio.create_task(e.run()) for e in (one, two)]
        leader = await led_by(one, two)
        assert 10 <= asyncio.get_running_loop().time() < 11
        leader.took_over(leader.term)
        await stop(*tasks)
        assert ballot.spec["holderIdentity"] is None

    virtual_time.run(story())


def test_who_only_waits_for_an_unknown_holder_does_not_hand_the_lease_on():
    async def story():
        ballot = Ballot(Random(1), spec=None)
        running = asyncio.create_task(candidate(ballot, "one").run())
        await asyncio.sleep(3)
        await stop(running)
        assert ballot.spec["holderIdentity"] == "one"

    virtual_time.run(story())


@pytest.mark.parametrize("seed", range(25))
def test_two_never_believe_at_once_whatever_the_network_and_the_clocks_do(seed, monkeypatch):
    """Late answers, late requests, lost ones, failing servers, frozen candidates, clocks that run 5% apart, stopped and
    new candidates, and an administrator who deletes the lease.
    """

    async def story():
        random, loop = Random(seed), asyncio.get_running_loop()
        ballot = Ballot(random, faults=True)
        rates = [0.95, 1.0, 1.05]
        elections, tasks = [], []
        led = set()

        def join():
            name = f"c{len(elections)}"
            elections.append(candidate(ballot, name, rate=random.choice(rates), seed=random.random()))
            tasks.append(asyncio.create_task(elections[-1].run()))

        sleep = asyncio.sleep

        async def sleep_or_freeze(seconds):
            await sleep(
                seconds + (random.expovariate(1 / 6) if ballot.faults and random.random() < 0.05 else 0)
            )

        monkeypatch.setattr(lease_module.asyncio, "sleep", sleep_or_freeze)
        for _ in range(3):
            join()
        while loop.time() < 300:
            await sleep(0.05)
            believers = [e.identity for e in elections if e.leading()]
            assert len(believers) <= 1, f"{believers} at {loop.time():.2f}"
            led.update(believers)
            if random.random() < 0.002:
                ballot.delete()
            if random.random() < 0.004:
                tasks[random.randrange(len(tasks))].cancel()
                join()
        ballot.faults = False
        await led_by(*elections, within=40)
        assert len(led) >= 2
        await stop(*tasks)

    virtual_time.run(story())


def test_settings_that_cannot_be_kept_are_refused():
    with pytest.raises(BadInput, match="duration must be longer"):
        LeaseSettings(duration=4, margin=2.0, renew_every=2.0)


def test_identities_are_never_the_same():
    assert len({unique_identity() for _ in range(100)}) == 100

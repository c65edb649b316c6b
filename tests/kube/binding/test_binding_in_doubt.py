"""A Binding whose answer was lost: the charge stays until it is known what has become of it."""

import asyncio

import pytest
from kube.binding.bindings import (
    bound_and_charged,
    neither_bound_nor_charged,
    nothing_is_under_way,
    world,
)
from kube.builders import pod_json
from kube.fakeapi import lost, refused, withheld
from kube.virtual_time import run

from cotenant.dialects import names
from cotenant.kube.api.errors import Conflict, Unreachable
from cotenant.kube.binding.binder import NotBound


def test_an_answer_that_was_lost_though_it_was_bound():
    async def main():
        at = world()
        at.api.fates["bind"] = [lost()]
        with pytest.raises(Unreachable):
            await at.bind("a")
        assert at.charged() == {"uid-a": "n1"}
        await at.settled()
        bound_and_charged(at)

    run(main())


def test_a_request_that_was_lost():
    async def main():
        at = world()
        at.api.fates["bind"] = [lost(before=True)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        assert at.charged() == {"uid-a": "n1"}, "it may still arrive"
        with pytest.raises(NotBound, match="being bound"):
            await at.bind("a")
        await at.settled()
        neither_bound_nor_charged(at)

    run(main())


def test_a_request_that_arrives_late_fails_by_the_fence():
    async def main():
        at = world()
        late = []
        at.api.fates["bind"] = [withheld(late)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        with pytest.raises(Conflict):
            late[0]()
        neither_bound_nor_charged(at)

    run(main())


def test_a_request_that_arrives_before_the_fence_is_found_bound():
    async def main():
        at = world()
        late = []

        async def arrives(api, act):
            late[0]()
            act()

        at.api.fates |= {"bind": [withheld(late)], "patch": [arrives]}
        at.api.at_once = False
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        bound_and_charged(at)

    run(main())


def test_doubt_lasts_as_long_as_the_api_server_is_silent():
    async def main():
        at = world()
        silent = [lost(before=True)] * 20
        at.api.fates = {"bind": [lost()], "patch": [*silent], "get": [*silent]}
        with pytest.raises(Unreachable):
            await at.bind("a")
        await asyncio.sleep(30)
        assert at.charged() == {"uid-a": "n1"}
        assert at.feed.under_way == {"uid-a"}
        await at.settled()
        bound_and_charged(at)

    run(main())


def test_in_doubt_and_then_gone():
    async def main():
        at = world()
        at.api.fates["bind"] = [lost(before=True)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        at.api.drop("a")
        await at.settled()
        neither_bound_nor_charged(at)

    run(main())


def test_in_doubt_and_then_another_pod_of_that_name():
    async def main():
        at = world()
        at.api.at_once = False
        at.api.fates["bind"] = [lost(before=True)]
        with pytest.raises(Unreachable):
            await at.bind("a")
        at.api.drop("a")
        at.api.add(pod_json("a", uid="second"))
        await at.settled()
        neither_bound_nor_charged(at)
        assert names.RETRY not in at.api.truth("a").metadata.annotations

    run(main())


def test_a_conflict_of_the_fence_with_other_writers_settles_nothing():
    """An API server answers so, too, when many write one object at the same time."""

    async def main():
        at = world()
        at.api.fates = {"bind": [lost()], "patch": [refused(Conflict("try again", code=409))] * 3}
        at.api.at_once = False
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        bound_and_charged(at)

    run(main())


def test_bound_with_a_grant_that_cannot_be_read():
    async def main():
        at = world()

        async def forged(api, act):
            act()
            api.change("a", lambda it: it["metadata"]["annotations"].update({names.GRANT: "{}"}))
            raise Unreachable("not in time", uncertain=True)

        at.api.fates["bind"] = [forged]
        with pytest.raises(Unreachable):
            await at.bind("a")
        await at.settled()
        assert at.charged() == {}
        nothing_is_under_way(at)

    run(main())


def test_in_doubt_when_the_lease_ends_the_next_list_tells():
    async def main():
        for happened in (True, False):
            at = world()
            silent = [lost(before=True)] * 99
            at.api.fates = {"bind": [lost(before=not happened)], "patch": [*silent], "get": [*silent]}
            at.api.at_once = False
            with pytest.raises(Unreachable):
                await at.bind("a")
            await asyncio.sleep(1)
            at.lead.seconds = 0
            await at.settled()
            nothing_is_under_way(at)
            assert at.charged() == {"uid-a": "n1"}
            at.lead.seconds = 1e9
            unseen = at.feed.unseen()
            at.api.relist()
            at.feed.forget_unseen(unseen)
            if happened:
                bound_and_charged(at)
            else:
                neither_bound_nor_charged(at)

    run(main())


def test_a_doubt_that_outlives_its_term_is_not_forgotten_by_the_next():
    """Its request may still arrive: only the fence ends that."""

    async def main():
        at = world()
        at.api.fates = {"bind": [lost(before=True)], "patch": [lost(before=True)] * 3}
        with pytest.raises(Unreachable):
            await at.bind("a")
        at.feed.forget_unseen(at.feed.unseen())
        assert at.charged() == {"uid-a": "n1"}
        with pytest.raises(NotBound, match="being bound"):
            await at.bind("a")
        await at.settled()
        neither_bound_nor_charged(at)

    run(main())


def test_cancelled_while_the_request_is_under_way():
    async def main():
        for happened in (True, False):
            at = world()
            go = asyncio.Event()

            async def fate(api, act, go=go, happened=happened):
                if happened:
                    act()
                await go.wait()

            at.api.fates["bind"] = [fate]
            task = asyncio.create_task(at.bind("a"))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert at.charged() == {"uid-a": "n1"}
            await at.settled()
            if happened:
                bound_and_charged(at)
            else:
                neither_bound_nor_charged(at)

    run(main())

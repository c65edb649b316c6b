"""Whatever becomes of a Binding, the ledger then shows exactly what is true, and nothing is left under way."""

import asyncio
import json

import pytest
from kube.binding.bindings import (
    bound_and_charged,
    neither_bound_nor_charged,
    nothing_is_under_way,
    touch,
    world,
)
from kube.builders import GI, node_json, pod_json
from kube.fakeapi import after, hangs, lost, refused
from kube.virtual_time import run
from kube.world import World

from cotenant.core.errors import BadInput, CotenantError, NoRoom
from cotenant.dialects import names
from cotenant.kube.api.election import NotLeading
from cotenant.kube.api.errors import Forbidden, NotFound, ServerFailed, Unreachable
from cotenant.kube.binding.binder import NotBound


def test_a_bind_carries_the_grant():
    async def main():
        at = world(16, 8)
        await at.bind("a")
        bound_and_charged(at)
        assert at.free() in ([16, 4], [12, 8])
        assert at.api.calls == [("bind", "pods", "a")]
        assert names.devices("main") in at.api.truth("a").metadata.annotations
        (seen,) = at.cluster.learned.seen.counts
        assert seen.demand.per_card(0) == 4 * GI

    run(main())


def test_a_pod_without_gpu_is_bound_and_charges_nothing():
    async def main():
        at = World()
        at.api.add(pod_json("a", None, cpu="1"))
        await at.bind("a", "anywhere")
        assert at.api.truth("a").spec.node_name == "anywhere"
        assert at.charged() == {}
        nothing_is_under_way(at)

    run(main())


def test_a_newer_state_of_the_pod_is_read_and_bound():
    async def main():
        at = world()
        at.api.at_once = False
        touch(at.api)
        await at.bind("a")
        assert [call.verb for call in at.api.calls] == ["bind", "get", "bind"]
        bound_and_charged(at)

    run(main())


def test_a_pod_that_the_watch_has_not_told_of_is_read():
    async def main():
        at = world()
        at.api.at_once = False
        at.api.add(pod_json("b"))
        await at.bind("b")
        bound_and_charged(at, "b")

    run(main())


def test_a_pod_that_changes_all_the_time_is_given_up_and_nothing_stays_charged():
    async def main():
        at = world()
        at.api.fates["bind"] = [after(touch)] * 9
        with pytest.raises(NotBound, match="faster"):
            await at.bind("a")
        assert at.api.count("bind") == 3
        neither_bound_nor_charged(at)

    run(main())


@pytest.mark.parametrize(
    "error",
    [
        NotFound("gone", code=404),
        Forbidden("no", code=403),
        Unreachable("no connection"),
        ServerFailed("overloaded", code=429),
    ],
)
def test_a_certain_failure_gives_the_charge_back(error):
    async def main():
        at = world()
        at.api.fates["bind"] = [refused(error)]
        with pytest.raises(type(error)):
            await at.bind("a")
        neither_bound_nor_charged(at)
        await at.bind("a")
        bound_and_charged(at)

    run(main())


def test_bound_elsewhere_by_another_server_the_charge_is_there():
    async def main():
        at = world(16, a="4Gi")
        at.api.add_node(node_json("n2", 16))
        other = World()
        other.api.add_node(node_json("n2", 16))
        other.api.add(pod_json("a"))
        await other.bind("a", "n2")
        grant = other.api.truth("a").metadata.annotations

        def elsewhere(api):
            def change(it):
                it["spec"]["nodeName"] = "n2"
                it["metadata"]["annotations"] = dict(grant)

            api.change("a", change)

        for told in (True, False):  # the watch is quicker than the answer, or slower
            at.api.at_once = told
            at.api.fates["bind"] = [after(elsewhere)]
            with pytest.raises(NotBound, match="n2"):
                await at.bind("a", "n1")
            bound_and_charged(at, "a", "n2")
            assert at.free("n1") == [16]
            assert at.free("n2") == [12]

    run(main())


def test_bound_here_by_an_earlier_try_is_done():
    async def main():
        at = world()
        at.api.at_once = False
        await at.bind("a")
        at.feed.give_back("uid-a")  # an earlier leader did it, and we have not seen it
        await at.bind("a")
        assert at.api.count("bind") == 2
        bound_and_charged(at)

    run(main())


def test_who_does_not_lead_binds_nothing():
    async def main():
        at = world()
        at.lead.seconds = 3.0  # not long enough for a request
        with pytest.raises(NotLeading):
            await at.bind("a")
        assert at.api.calls == []
        neither_bound_nor_charged(at)

    run(main())


def test_the_lease_that_ends_while_the_pod_is_read():
    async def main():
        at = world()
        at.api.at_once = False
        touch(at.api)

        async def ends(api, act):
            at.lead.seconds = 1.0

        at.api.fates["get"] = [ends]
        with pytest.raises(NotLeading):
            await at.bind("a")
        assert at.api.count("bind") == 1
        neither_bound_nor_charged(at)
        assert at.api.count("patch") == 0

    run(main())


def test_cancelled_while_the_pod_is_read():
    async def main():
        at = world()
        at.api.at_once = False
        at.api.add(pod_json("b"))
        at.api.fates["get"] = [hangs(asyncio.Event())]
        task = asyncio.create_task(at.bind("b"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        neither_bound_nor_charged(at)

    run(main())


def test_of_two_binds_of_one_pod_one_is_refused():
    async def main():
        at = world(16, 16)
        results = await asyncio.gather(at.bind("a"), at.bind("a"), return_exceptions=True)
        assert [type(each) for each in results] == [type(None), NotBound]
        bound_and_charged(at)

    run(main())


def test_of_two_pods_for_the_same_room_the_second_waits():
    async def main():
        at = world(16, a="10Gi", b="10Gi")
        results = await asyncio.gather(at.bind("a"), at.bind("b"), return_exceptions=True)
        assert [type(each) for each in results] == [type(None), NoRoom]
        bound_and_charged(at, "a")
        assert at.line.place_of("uid-b") == 1
        assert at.line.place_of("uid-a") is None

    run(main())


def _on(at: World, uid: str, card: int) -> bool:
    charged = at.cluster.charged(uid)
    assert charged is not None
    return any(share.uuid == f"GPU-n1-{card}" for slot in charged[1].slots for share in slot.shares)


def test_no_more_is_granted_than_there_is_when_a_hundred_bind_at_once():
    async def main():
        at = world(16, 16, **{f"p{i}": "3Gi" for i in range(100)})
        fates = [refused(Forbidden("", code=403)), lost(), lost(before=True), after(lambda _: None)]
        at.api.fates["bind"] = [fates[i % 4] for i in range(100)]
        tries = await asyncio.gather(*(at.bind(f"p{i}") for i in range(100)), return_exceptions=True)
        assert all(each is None or isinstance(each, CotenantError) for each in tries)
        await at.settled()
        bound = {
            pod.metadata.uid: pod.spec.node_name
            for pod in (at.api.truth(f"p{i}") for i in range(100))
            if pod.spec.node_name
        }
        assert at.charged() == bound
        nothing_is_under_way(at)
        assert at.free() == [16 - 3 * sum(_on(at, uid, card) for uid in bound) for card in (0, 1)]

    run(main())


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z"),
        lambda it: it["status"].update(phase="Failed"),
        lambda it: it["spec"].update(schedulingGates=[{"name": "later"}]),
    ],
)
def test_what_is_leaving_or_gated_is_not_bound(change):
    async def main():
        at = world()
        at.api.change("a", change)
        with pytest.raises(NotBound):
            await at.bind("a")
        assert at.api.calls == []
        neither_bound_nor_charged(at)

    run(main())


def test_another_pod_of_that_name_is_not_bound():
    async def main():
        at = world()
        meta = at.api.truth("a").metadata
        with pytest.raises(NotBound, match="another"):
            await at.binder.bind(meta.namespace, meta.name, "old", "n1")
        neither_bound_nor_charged(at)

    run(main())


def test_a_node_that_is_gone_has_no_room():
    async def main():
        at = world()
        at.api.remove_node("n1")
        with pytest.raises(NoRoom):
            await at.bind("a")
        neither_bound_nor_charged(at)
        assert at.line.place_of("uid-a") == 1

    run(main())


def test_a_demand_that_cannot_be_understood_charges_nothing():
    async def main():
        at = world()
        at.api.change("a", lambda it: it["metadata"]["annotations"].update({names.PLACEMENT: "nonsense"}))
        with pytest.raises(BadInput):
            await at.bind("a")
        neither_bound_nor_charged(at)

    run(main())


def test_a_grant_that_cannot_be_written_charges_nothing(monkeypatch):
    async def main():
        at = world()

        def broken(*_):
            raise ValueError("a bug")

        monkeypatch.setattr("cotenant.kube.binding.binder.bind_annotations", broken)
        with pytest.raises(ValueError, match="a bug"):
            await at.bind("a")
        neither_bound_nor_charged(at)

    run(main())


def test_deleted_while_it_is_being_bound():
    async def main():
        at = world()
        at.api.fates["bind"] = [after(lambda api: api.drop("a"))]
        with pytest.raises(NotFound):
            await at.bind("a")
        neither_bound_nor_charged(at)

    run(main())


def test_bound_and_gone_before_the_answer_comes():
    async def main():
        at = world()

        async def fate(api, act):
            act()
            api.drop("a")

        at.api.fates["bind"] = [fate]
        await at.bind("a")
        neither_bound_nor_charged(at)

    run(main())


def test_what_the_binding_says_is_what_the_ledger_has():
    async def main():
        at = world(16, 16)
        at.api.add(
            pod_json(
                "two", "10Gi", annotations={names.gpu_count("main"): "2"}, created="2030-01-01T00:00:01Z"
            )
        )
        await at.bind("two")
        bound_and_charged(at, "two")
        assert at.free() == [11, 11]
        grant = json.loads(at.api.truth("two").metadata.annotations[names.GRANT])
        assert sum(share["memory"] for slot in grant["slots"] for share in slot["shares"]) == 10 * GI

    run(main())

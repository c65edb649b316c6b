"""The ledger follows what is seen of pods and nodes, and never gives back what may still be in use."""

import asyncio

from kube import virtual_time
from kube.builders import GI, node_json, pod_json
from kube.fakeapi import hangs
from kube.world import World

from cotenant.core.loss import Spare
from cotenant.dialects import names


def run(main):
    return virtual_time.run(main)


async def bound(name: str = "a", *cards: int) -> World:
    at = World()
    at.api.add_node(node_json("n1", *(cards or (16,))))
    at.api.add(pod_json(name))
    await at.bind(name)
    return at


def restarted(at: World) -> World:
    """Another server, which knows only what the API server shows."""
    again = World()
    for node in at.api.nodes:
        again.api.nodes.put(node)
    again.api.objects = at.api.objects
    again.api.relist()
    return again


def test_a_new_server_charges_what_bound_pods_say():
    async def main():
        at = await bound()
        again = restarted(at)
        assert again.cluster.pods == at.cluster.pods
        assert again.free() == [12]

    run(main())


def test_pods_seen_before_their_node_are_charged_when_it_comes():
    async def main():
        at = await bound()
        again = World()
        again.api.objects = at.api.objects
        again.api.relist()
        assert again.charged() == {"uid-a": "n1"}
        again.api.add_node(node_json("n1", 16))
        assert again.free() == [12]

    run(main())


def test_a_terminating_pod_stays_charged_until_it_is_gone():
    async def main():
        at = await bound()
        at.api.change("a", lambda it: it["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z"))
        assert at.charged() == {"uid-a": "n1"}
        at.api.drop("a")
        assert at.charged() == {}
        assert at.free() == [16]

    run(main())


def test_a_completed_pod_gives_its_grant_back():
    async def main():
        for phase in ("Succeeded", "Failed"):
            at = await bound()
            at.api.change("a", lambda it, phase=phase: it["status"].update(phase=phase))
            assert at.charged() == {}
            assert restarted(at).charged() == {}
        at = await bound()
        at.api.change("a", lambda it: it["status"].update(phase="Unknown"))
        assert at.charged() == {"uid-a": "n1"}, "its node is out of reach, and it may run on"

    run(main())


def test_a_gated_pod_is_not_charged():
    at = World()
    at.api.add_node(node_json("n1", 16))
    body = pod_json("a")
    body["spec"]["schedulingGates"] = [{"name": "later"}]
    at.api.add(body)
    assert at.charged() == {}


def test_deleted_and_made_anew_under_its_name_it_is_another_pod():
    async def main():
        at = await bound()
        at.api.at_once = False
        at.api.drop("a")
        at.api.add(pod_json("a", uid="second"))
        at.api.deliver()
        assert at.charged() == {}
        await at.bind("a")
        at.api.deliver()
        assert at.charged() == {"second": "n1"}

    run(main())


def test_made_anew_while_nobody_looked():
    async def main():
        at = await bound()
        at.api.at_once = False
        at.api.drop("a")
        at.api.add(pod_json("a", uid="second"))
        at.api.relist()
        assert at.charged() == {}
        assert at.free() == [16]

    run(main())


def test_a_node_that_goes_and_returns_has_its_charges():
    async def main():
        at = await bound()
        at.api.remove_node("n1")
        assert at.cluster.nodes == ()
        assert at.charged() == {"uid-a": "n1"}
        at.api.add_node(node_json("n1", 16))
        assert at.free() == [12]
        at.api.remove_node("n1")
        at.api.drop("a")
        at.api.add_node(node_json("n1", 16))
        assert at.free() == [16]

    run(main())


def test_a_card_that_is_replaced_frees_nothing_that_is_charged():
    async def main():
        at = await bound()
        at.api.add_node(node_json("n1", 16, 16))
        assert sorted(at.free()) == [12, 16]
        at.api.add_node(node_json("n1", 16, outside={0: 10}))
        assert at.free() == [2]

    run(main())


def test_an_annotation_that_cannot_be_read_is_no_card(caplog):
    async def main():
        at = await bound()
        broken = node_json("n1", 16)
        broken["metadata"]["annotations"][names.GPUS] = '{"version": 1, "cards": 7}'
        for _ in range(3):
            at.api.add_node(broken)
        assert at.cluster.ledger("n1").gpus == ()
        assert at.charged() == {"uid-a": "n1"}
        at.api.add_node(node_json("n1", 16))
        assert at.free() == [12]
        assert sum("node=n1" in record.message for record in caplog.records) == 1

    run(main())


def test_a_grant_that_cannot_be_read_is_none(caplog):
    async def main():
        at = await bound()
        at.api.change("a", lambda it: it["metadata"]["annotations"].update({names.GRANT: '{"version": 9}'}))
        at.api.change("a", lambda it: it["status"].update(phase="Running"))
        assert at.charged() == {}
        assert sum("namespace=web pod=a" in record.message for record in caplog.records) == 1

    run(main())


def test_the_grant_of_another_pod_is_none():
    async def main():
        at = await bound()
        copied = at.api.truth("a").metadata.annotations[names.GRANT]
        at.api.add(pod_json("b", node="n1", annotations={names.GRANT: copied}))
        assert at.charged() == {"uid-a": "n1"}

    run(main())


def test_a_pod_that_is_being_bound_is_not_released_by_what_is_seen_of_it():
    async def main():
        at = World()
        at.api.add_node(node_json("n1", 16))
        at.api.add(pod_json("a"))
        go = asyncio.Event()
        at.api.fates["bind"] = [hangs(go)]
        task = asyncio.create_task(at.bind("a"))
        await asyncio.sleep(1)
        assert at.charged() == {"uid-a": "n1"}
        at.api.change("a", lambda it: it["status"].update(message="touched"))
        assert at.charged() == {"uid-a": "n1"}
        at.api.add(pod_json("other", "1Gi"))
        at.feed.forget_unseen(at.feed.unseen())
        assert at.charged() == {"uid-a": "n1"}
        go.set()
        await task
        assert at.charged() == {"uid-a": "n1"}
        assert at.feed.under_way == set()

    run(main())


def test_a_new_term_forgets_what_a_newer_list_does_not_show():
    async def main():
        at = await bound()
        at.api.add(pod_json("b"))
        at.api.at_once = False
        await at.bind("b")
        del at.api.objects["pods", "web", "b"]  # never seen bound, nor gone
        unseen = at.feed.unseen()
        assert set(unseen) == {"uid-b"}
        at.api.relist()
        at.feed.forget_unseen(unseen)
        assert at.charged() == {"uid-a": "n1"}

    run(main())


def test_what_was_bound_after_the_list_is_not_forgotten():
    async def main():
        at = await bound()
        at.api.at_once = False
        at.api.add(pod_json("b"))
        unseen = at.feed.unseen()
        at.api.relist()
        await at.bind("b")  # the watch will tell of it later
        at.feed.forget_unseen(unseen)
        assert at.charged() == {"uid-a": "n1", "uid-b": "n1"}
        await at.bind("b")
        unseen = at.feed.unseen()
        at.api.deliver()
        at.feed.forget_unseen(unseen)
        assert at.charged() == {"uid-a": "n1", "uid-b": "n1"}
        assert at.free() == [16 - 8]

    run(main())


def test_a_bind_that_did_not_happen_does_not_take_what_another_gave():
    async def main():
        at = await bound()
        at.feed.give_back("uid-a")
        assert at.charged() == {"uid-a": "n1"}
        assert at.cluster.ledger("n1").granted("GPU-n1-0") == 4 * GI

    run(main())


def test_a_pod_that_came_and_went_while_nobody_looked_is_found_out():
    async def main():
        at = await bound()
        at.api.at_once = False
        at.api.add(pod_json("b"))
        at.api.add(pod_json("slow"))
        await at.bind("b")
        await at.bind("slow")
        at.api.drop("b")
        lists = []

        async def relist():
            lists.append(asyncio.get_running_loop().time())
            at.api.relist()

        at.api._waiting.clear()  # the watch broke
        counting = asyncio.create_task(at.feed.recount(relist))
        await asyncio.sleep(45)
        assert set(at.charged()) == {"uid-a", "uid-b", "uid-slow"}, "the watch may only be slow"
        await asyncio.sleep(45)
        assert set(at.charged()) == {"uid-a", "uid-slow"}
        assert at.free() == [8]
        await asyncio.sleep(600)
        assert len(lists) == 1, "what is seen is not listed for"
        counting.cancel()

    run(main())


def test_what_all_pods_take_beside_gpus_is_known_and_given_back_when_they_end():
    async def main():
        at = World()
        at.api.add_node(node_json("n1", 16, cpu="8", memory="32Gi", pods="10"))
        at.api.add(pod_json("plain", None, node="n1", cpu="1500m"))
        assert at.cluster.spare("n1") == Spare(6500, 32 * GI, 9)
        at.api.add(pod_json("gpu", cpu="2", annotations={names.GPU_MODEL: "A100"}))
        await at.bind("gpu")
        assert at.cluster.spare("n1") == Spare(4500, 32 * GI, 8)
        seen = {(kind.demand is None, kind.cpu) for kind in at.cluster.learned.seen.counts}
        assert seen == {(True, 1500), (False, 2000)}
        again = restarted(at)
        assert again.cluster.spare("n1") == at.cluster.spare("n1")
        for name in ("plain", "gpu"):
            at.api.drop(name)
        assert at.cluster.spare("n1") == Spare(8000, 32 * GI, 10)

    run(main())

"""A pod of high priority that fits a node by its sums and on no card: exactly those end who open one, or nobody."""

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from kube import virtual_time
from kube.extender.world import MEMORY, World, lost, node_json, pod_json, refused

from cotenant.dialects import names
from cotenant.kube.errors import Forbidden, ServerFailed, TooManyRequests
from cotenant.kube.extender.messages import Args, MetaPod, MetaVictims, PreemptArgs
from cotenant.kube.settings import Line


def run(main):
    return virtual_time.run(main())


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cluster(**nodes: tuple[int, ...]) -> World:
    """By default one node with two cards of 16 GiB."""
    loop = asyncio.get_running_loop()
    at = World(Line(), clock=loop.time, wall=lambda: 1.9e9 + loop.time())
    at.api.leaves = lambda: stamp(at.wall() + 30)
    for name, cards in (nodes or {"n1": (16, 16)}).items():
        at.api.add_node(node_json(name, *cards))
    at.running = [asyncio.create_task(each.run()) for each in (at.line, at.preempting, at.teller)]
    return at


async def runs(at: World, name: str, memory: str | None, card: int, node: str = "n1", **how) -> None:
    """A pod that runs on this very card."""
    uuid = {names.GPU_UUID: f"GPU-{node}-{card}"}
    at.api.add(pod_json(name, memory, annotations={**uuid, **how.pop("annotations", {})}, **how))
    await at.bind(name, node)


def tries(at: World, name: str, *nodes: str) -> list[str]:
    """As kube-scheduler does: it asks where the pod fits, and writes into the pod that it fits nowhere."""
    there = list(nodes) or [node.metadata.name for node in at.api.nodes]
    answer = json.loads(at.decider.filter(Args(at.api.truth(name), node_names=there)))
    if not answer["NodeNames"]:
        said = f"0/{len(there)} nodes are available: " + ", ".join(answer["FailedNodes"].values())
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        at.api.change(name, lambda it: it["status"].update(conditions=[verdict]))
    return answer["NodeNames"]


async def waits(at: World, name: str, memory: str | None = "12Gi", *nodes: str, **how) -> None:
    """A pod for which kube-scheduler has found neither room nor victims."""
    how = {"priority": 10, **how}
    at.api.add(pod_json(name, memory, **how))
    assert tries(at, name, *nodes) == []


def evicted(at: World) -> list[str]:
    return [name for verb, name in at.api.asked if verb == "evict"]


def called(at: World) -> list[str]:
    return [name for verb, name in at.api.asked if verb == "patch"]


def told(at: World, reason: str) -> list[str]:
    return [each["involvedObject"]["name"] for each in at.api.events if each["reason"] == reason]


async def fragmented(at: World) -> None:
    """On each card 10 of 16 GiB are taken: 12 are free by the sum, 6 on a card."""
    await runs(at, "older", "10Gi", 0, created="2030-01-01T00:00:00Z")
    await runs(at, "younger", "10Gi", 1, created="2030-01-02T00:00:00Z")


def test_the_one_whose_end_opens_a_card_is_evicted_and_the_pod_gets_that_card():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]
        assert at.fleet.holds() == {"uid-urgent": ("n1", ("GPU-n1-1",))}
        assert told(at, "EvictedForGPU") == ["younger"]
        assert told(at, "EvictingForGPU") == ["urgent"]
        assert tries(at, "urgent") == []
        await asyncio.sleep(40)
        assert evicted(at) == ["younger"], "one opening, one eviction"
        at.api.delete("younger")
        await asyncio.sleep(1)
        assert called(at) == ["urgent"]
        assert tries(at, "urgent") == ["n1"]
        await at.bind("urgent")
        await asyncio.sleep(60)
        assert at.free() == [6, 4]
        assert evicted(at) == ["younger"]
        assert at.fleet.holds() == {}
        assert at.line.pressing == {}

    run(main)


def test_nobody_smaller_takes_the_room_meanwhile():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(3)
        at.api.add(pod_json("small", "2Gi"))
        assert tries(at, "small") == ["n1"]
        await at.bind("small")
        assert at.free() == [4, 6], "on the card that is not held"
        at.api.add(pod_json("next", "5Gi"))
        assert tries(at, "next") == []
        at.api.delete("younger")
        await asyncio.sleep(1)
        assert tries(at, "next") == []
        assert tries(at, "urgent") == ["n1"]

    run(main)


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ("of equal priority", {"priority": 0}),
        ("of lower priority", {"priority": -5}),
        ("larger than any card", {"memory": "20Gi"}),
    ],
)
def test_nobody_is_evicted_for_one_that_is(why, how):
    async def main():
        at = cluster(n1=(16, 16), big=(8, 8, 8, 8))
        await fragmented(at)
        await runs(at, "x", "7Gi", 0, "big", priority=20)
        await waits(at, "p", **how)
        await asyncio.sleep(100)
        assert evicted(at) == []
        assert at.fleet.holds().keys() <= {"uid-p"}

    run(main)


def test_nobody_is_evicted_for_one_that_is_never_to_have_others_evicted():
    async def main():
        at = cluster()
        await fragmented(at)
        body = pod_json("polite", "12Gi", priority=10)
        body["spec"]["preemptionPolicy"] = "Never"
        at.api.add(body)
        assert tries(at, "polite") == []
        await asyncio.sleep(50)
        assert evicted(at) == []
        assert at.fleet.holds() == {}

    run(main)


def test_nobody_is_evicted_where_those_who_must_stay_keep_every_card_too_full():
    async def main():
        at = cluster()
        for card in (0, 1):
            await runs(at, f"stays-{card}", "9Gi", card, priority=10)
            await runs(at, f"low-{card}", "2Gi", card)
        await waits(at, "urgent", "8Gi")
        await asyncio.sleep(50)
        assert evicted(at) == []

    run(main)


def test_a_pod_that_kube_scheduler_has_nominated_is_left_to_it():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        at.api.change("urgent", lambda it: it["status"].update(nominatedNodeName="n1"))
        await asyncio.sleep(50)
        assert evicted(at) == []
        at.api.change("urgent", lambda it: it["status"].update(nominatedNodeName=""))
        assert tries(at, "urgent") == []
        await asyncio.sleep(10)
        assert len(evicted(at)) == 1

    run(main)


def test_before_kube_scheduler_has_had_its_say_nobody_is_evicted():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.add(pod_json("urgent", "12Gi", priority=10))
        at.decider.filter(Args(at.api.truth("urgent"), node_names=["n1"]))
        await asyncio.sleep(60)
        assert evicted(at) == []
        tries(at, "urgent")
        await asyncio.sleep(2)
        assert len(evicted(at)) == 1

    run(main)


def test_where_the_sums_do_not_do_it_is_kube_schedulers_part():
    async def main():
        at = cluster()
        await fragmented(at)
        await runs(at, "more", "4Gi", 0)
        await waits(at, "urgent", "12Gi")
        await asyncio.sleep(60)
        assert evicted(at) == [], "28 of 32 are taken"

    run(main)


def test_where_cpu_does_not_do_it_is_kube_schedulers_part():
    async def main():
        at = cluster()
        at.api.add_node(node_json("n1", 16, 16, cpu="4"))
        await fragmented(at)
        await waits(at, "urgent", "12Gi", cpu="5")
        await asyncio.sleep(60)
        assert evicted(at) == []

    run(main)


def test_kube_scheduler_that_has_been_told_whom_to_evict_is_given_time_for_it():
    async def main():
        at = cluster(n1=(16, 16), n2=(16,))
        await fragmented(at)
        await runs(at, "full", "16Gi", 0, "n2")
        at.api.add(pod_json("urgent", "12Gi", priority=10))
        tries(at, "urgent", "n1")
        proposed = {"n2": MetaVictims((MetaPod("uid-full"),), 0)}
        asked = PreemptArgs(at.api.truth("urgent"), node_name_to_meta_victims=proposed)
        assert json.loads(at.decider.preempt(asked))["NodeNameToMetaVictims"].keys() == {"n2"}
        await asyncio.sleep(20)
        assert evicted(at) == []

    run(main)


def test_kube_scheduler_is_told_to_evict_nobody_more_while_room_is_being_opened():
    async def main():
        at = cluster(n1=(16, 16), n2=(16,))
        await fragmented(at)
        await runs(at, "full", "16Gi", 0, "n2")
        await waits(at, "urgent", "12Gi", "n1")
        await asyncio.sleep(2)
        assert evicted(at) == ["younger"]
        proposed = {"n2": MetaVictims((MetaPod("uid-full"),), 0)}
        asked = PreemptArgs(at.api.truth("urgent"), node_name_to_meta_victims=proposed)
        assert json.loads(at.decider.preempt(asked))["NodeNameToMetaVictims"] == {}

    run(main)


def test_one_who_is_leaving_already_is_enough():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.change("older", lambda it: it["metadata"].update(deletionTimestamp=stamp(at.wall() + 30)))
        await waits(at, "urgent")
        await asyncio.sleep(25)
        assert evicted(at) == []
        assert at.fleet.holds() == {"uid-urgent": ("n1", ("GPU-n1-0",))}
        at.api.delete("older")
        await asyncio.sleep(1)
        assert tries(at, "urgent") == ["n1"]

    run(main)


def test_one_who_should_have_left_long_ago_is_not_waited_for():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.change("older", lambda it: it["metadata"].update(deletionTimestamp=stamp(at.wall() + 5)))
        await waits(at, "urgent")
        await asyncio.sleep(30)
        assert evicted(at) == []
        for _ in range(30):
            tries(at, "urgent")
            await asyncio.sleep(2)
        assert evicted(at) == ["younger"]

    run(main)


def test_several_of_a_card_are_evicted_if_it_takes_several_and_no_more():
    async def main():
        at = cluster()
        for number in range(3):
            await runs(at, f"third-{number}", "4Gi", 0)
        await runs(at, "must-stay", "12Gi", 1, priority=10)
        await waits(at, "urgent", "8Gi")
        await asyncio.sleep(3)
        assert len(evicted(at)) == 1, "4 GiB are free already"
        assert evicted(at)[0].startswith("third-")

    run(main)


def test_a_pod_of_several_containers_over_several_cards():
    async def main():
        at = cluster(n1=(16, 16, 16))
        for card in range(3):
            await runs(at, f"low-{card}", "10Gi", card, created=f"2030-01-0{card + 1}T00:00:00Z")
        body = pod_json("urgent", "12Gi", priority=10)
        body["spec"]["containers"].append({"name": "side", "resources": {"limits": {MEMORY: "5Gi"}}})
        at.api.add(body)
        assert tries(at, "urgent") == []
        await asyncio.sleep(3)
        assert evicted(at) == ["low-2"], "the smaller container fits beside what runs"
        at.api.delete("low-2")
        await asyncio.sleep(1)
        assert tries(at, "urgent") == ["n1"]

    run(main)


def test_a_demand_of_several_cards():
    async def main():
        at = cluster(n1=(16, 16, 16, 16))
        for card in range(4):
            await runs(at, f"low-{card}", "10Gi", card, created=f"2030-01-0{card + 1}T00:00:00Z")
        await waits(at, "urgent", "20Gi", annotations={names.gpu_count("main"): "2"})
        await asyncio.sleep(3)
        assert evicted(at) == ["low-3", "low-2"]
        assert [name for verb, name in at.api.asked if verb == "ask"] == ["low-3", "low-2"]
        assert at.fleet.holds()["uid-urgent"] == ("n1", ("GPU-n1-2", "GPU-n1-3"))

    run(main)


def test_a_whole_card():
    async def main():
        at = cluster()
        at.api.add_node(node_json("n1", 16, 16, **{names.GPU: "2"}))
        await runs(at, "one", "2Gi", 0)
        await runs(at, "two", "2Gi", 0)
        await runs(at, "three", "3Gi", 1)
        await waits(at, "urgent", None, **{"cotenant.dev__gpu": "1"})
        await asyncio.sleep(3)
        assert evicted(at) == ["three"]

    run(main)


def test_the_node_whose_victim_is_of_least_priority_then_where_they_are_fewest():
    async def main():
        at = cluster(n1=(16,), n2=(16,), n3=(16,))
        for node in ("n1", "n2", "n3"):
            at.api.add_node(node_json(node, 16, **{MEMORY: "32Gi"}))
        await runs(at, "middle", "10Gi", 0, "n1", priority=5)
        await runs(at, "low-1", "5Gi", 0, "n2")
        await runs(at, "low-2", "5Gi", 0, "n2")
        await runs(at, "low-3", "10Gi", 0, "n3")
        await waits(at, "urgent", "14Gi")
        await asyncio.sleep(3)
        assert evicted(at) == ["low-3"]

    run(main)


def test_only_nodes_that_kube_scheduler_has_asked_about_are_looked_at():
    async def main():
        at = cluster(n1=(16, 16), n2=(16, 16))
        await fragmented(at)
        await runs(at, "other", "10Gi", 0, "n2", created="2030-02-01T00:00:00Z")
        await runs(at, "another", "10Gi", 1, "n2", created="2030-02-01T00:00:00Z")
        await waits(at, "urgent", "12Gi", "n1")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]

    run(main)


def test_a_cordoned_node_is_no_place_for_it():
    async def main():
        at = cluster()
        await fragmented(at)
        body = node_json("n1", 16, 16)
        body["spec"] = {"unschedulable": True}
        at.api.add_node(body)
        await waits(at, "urgent")
        await asyncio.sleep(60)
        assert evicted(at) == []

    run(main)


def test_one_that_asks_for_less_beside_its_gpus_is_not_kept_by_one_ahead_that_asks_for_too_much():
    async def main():
        at = cluster()
        at.api.add_node(node_json("n1", 16, 16, cpu="4"))
        await fragmented(at)
        await waits(at, "greedy", cpu="5", created="2030-03-01T00:00:00Z")
        await waits(at, "modest", cpu="1", created="2030-03-02T00:00:00Z")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]
        assert at.fleet.holds().keys() == {"uid-modest"}

    run(main)


def test_several_urgent_pods_have_each_its_own_victim():
    async def main():
        at = cluster(n1=(16, 16), n2=(16, 16))
        await fragmented(at)
        await runs(at, "other", "10Gi", 0, "n2")
        await runs(at, "stays", "10Gi", 1, "n2", priority=10)
        for number in range(3):
            await waits(at, f"urgent-{number}", created=f"2030-03-0{number + 1}T00:00:00Z")
        await asyncio.sleep(3)
        assert sorted(evicted(at)) == ["older", "other", "younger"]
        assert {uid: cards for uid, (_, cards) in at.fleet.holds().items()} == {
            "uid-urgent-0": ("GPU-n1-1",),
            "uid-urgent-1": ("GPU-n1-0",),
            "uid-urgent-2": ("GPU-n2-0",),
        } or len(at.fleet.holds()) == 3
        await waits(at, "urgent-3", created="2030-03-04T00:00:00Z")
        await asyncio.sleep(50)
        assert len(evicted(at)) == 3, "nothing is left that would open a card"

    run(main)


def test_one_of_still_higher_priority_takes_what_is_being_opened_and_the_other_finds_more():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]
        await waits(at, "most-urgent", priority=100)
        await asyncio.sleep(2)
        assert evicted(at) == ["younger"]
        assert at.fleet.holds()["uid-most-urgent"] == ("n1", ("GPU-n1-1",))
        for _ in range(5):
            tries(at, "urgent")
            await asyncio.sleep(2)
        assert evicted(at) == ["younger", "older"]
        assert at.fleet.holds()["uid-urgent"] == ("n1", ("GPU-n1-0",))

    run(main)


def test_cards_held_for_somebody_ahead_are_not_opened_for_one_behind():
    async def main():
        at = cluster(n1=(16,))
        at.api.add_node(node_json("n1", 16, **{MEMORY: "32Gi"}))
        await runs(at, "low", "10Gi", 0)
        at.api.add(pod_json("ahead", "16Gi", priority=50))
        at.decider.filter(Args(at.api.truth("ahead"), node_names=["n1"]))
        at.fleet.hold("uid-ahead", "n1", ["GPU-n1-0"])
        await waits(at, "urgent", "8Gi")
        at.line.settings = Line(patience=0.0)
        await asyncio.sleep(20)
        assert evicted(at) == []

    run(main)


def test_a_budget_that_forbids_it_makes_another_the_victim_and_holds_nothing_back():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [refused(TooManyRequests("budget", code=429))]
        await waits(at, "urgent")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]
        assert at.fleet.holds() == {}
        await asyncio.sleep(10)
        assert evicted(at) == ["younger", "older"]
        assert at.fleet.holds() == {"uid-urgent": ("n1", ("GPU-n1-0",))}

    run(main)


def test_budgets_that_forbid_everything_are_asked_now_and_then():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [refused(TooManyRequests("budget", code=429))] * 1000
        await waits(at, "urgent")
        for _ in range(300):
            await asyncio.sleep(1)
            tries(at, "urgent")
        assert 4 <= len(evicted(at)) <= 12
        assert at.fleet.holds().keys() <= {"uid-urgent"}

    run(main)


def test_if_one_of_several_is_not_to_be_had_nobody_is_ended():
    async def main():
        at = cluster(n1=(16, 16))
        for card in (0, 1):
            for number in range(2):
                await runs(at, f"low-{card}-{number}", "7Gi", card)
        at.api.add_node(node_json("n1", 16, 16, **{MEMORY: "64Gi"}))
        budget = refused(TooManyRequests("budget", code=429))

        async def fine(api, act):
            act()

        at.api.fates["ask"] = [fine, budget, fine, budget]
        await waits(at, "urgent", "15Gi")
        await asyncio.sleep(20)
        assert evicted(at) == []
        assert at.fleet.holds() == {}

    run(main)


def test_without_the_right_to_evict_nothing_is_held_and_it_is_no_hot_loop():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [refused(Forbidden("not allowed", code=403))] * 1000
        await waits(at, "urgent")
        await asyncio.sleep(50)
        assert 1 <= len(evicted(at)) <= 4
        assert at.fleet.holds() == {}

    run(main)


def test_an_eviction_whose_answer_was_lost_is_not_followed_by_another_pods():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [lost()]
        await waits(at, "urgent")
        await asyncio.sleep(40)
        assert evicted(at) == ["younger"]

    run(main)


def test_an_eviction_that_never_arrived_is_sent_again():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [lost(before=True)]
        await waits(at, "urgent")
        await asyncio.sleep(10)
        assert evicted(at) == ["younger", "younger"]
        assert at.fleet.holds() == {"uid-urgent": ("n1", ("GPU-n1-1",))}

    run(main)


def test_a_server_that_always_fails_is_given_up():
    async def main():
        at = cluster()
        await fragmented(at)
        failed = refused(ServerFailed("more than one budget", code=500, uncertain=True))
        at.api.fates["evict"] = [failed] * 3
        await waits(at, "urgent")
        for _ in range(20):
            await asyncio.sleep(2)
            tries(at, "urgent")
        assert evicted(at) == ["younger"] * 3 + ["older"]

    run(main)


def test_who_does_not_lead_for_long_enough_evicts_nobody():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        at.lead.seconds = 3.0
        await asyncio.sleep(60)
        assert evicted(at) == []
        assert at.fleet.holds() == {}

    run(main)


def test_leadership_lost_between_two_evictions_and_the_next_leader_goes_on():
    async def main():
        at = cluster(n1=(16,))
        at.api.add_node(node_json("n1", 16, **{MEMORY: "32Gi"}))
        for number in range(2):
            await runs(at, f"low-{number}", "7Gi", 0)

        async def and_then_no_more(api, act):
            act()
            at.lead.seconds = 0.0

        at.api.fates["evict"] = [and_then_no_more]
        await waits(at, "urgent", "16Gi")
        await asyncio.sleep(20)
        assert len(evicted(at)) == 1
        at.lead.seconds = 1e9
        at.line.refill()
        await asyncio.sleep(6)
        assert "urgent" in called(at), "to which nodes it may go is asked anew"
        tries(at, "urgent")
        await asyncio.sleep(2)
        assert sorted(evicted(at)) == ["low-0", "low-1"]

    run(main)


def test_a_victim_that_was_deleted_and_made_again_under_its_name_is_not_evicted():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.at_once = False

        def made_again(api):
            api.delete("younger")
            api.add(pod_json("younger", "10Gi", uid="uid-another"))

        async def fate(api, act):
            made_again(api)
            act()

        at.api.fates["evict"] = [fate]
        at.api.add(pod_json("urgent", "12Gi", priority=10))
        at.api.deliver()
        tries(at, "urgent")
        at.api.deliver()
        await asyncio.sleep(2)
        at.api.deliver()
        await asyncio.sleep(2)
        assert at.api.truth("younger").metadata.uid == "uid-another"
        assert at.api.truth("younger").metadata.deletion_timestamp is None
        assert "urgent" in called(at)
        assert evicted(at) == ["younger"]

    run(main)


def test_a_pod_that_is_deleted_gives_back_what_is_held_and_no_more_end_for_it():
    async def main():
        at = cluster(n1=(16,))
        at.api.add_node(node_json("n1", 16, **{MEMORY: "32Gi"}))
        for number in range(2):
            await runs(at, f"low-{number}", "7Gi", 0)

        async def and_then_it_is_deleted(api, act):
            act()
            api.delete("urgent")

        at.api.fates["evict"] = [and_then_it_is_deleted]
        await waits(at, "urgent", "16Gi")
        await asyncio.sleep(20)
        assert len(evicted(at)) == 1
        assert at.fleet.holds() == {}
        assert at.line.pressing == {}

    run(main)


def test_one_that_still_does_not_fit_when_its_victims_are_gone_tries_again():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(2)
        assert evicted(at) == ["younger"]
        at.api.delete("younger")
        at.api.add_node(node_json("n1", 16, 16, outside={1: 10}))
        for _ in range(15):
            await asyncio.sleep(2)
            tries(at, "urgent")
        assert evicted(at) == ["younger", "older"]

    run(main)


def test_by_old_knowledge_kube_scheduler_is_asked_before_anybody_is_evicted():
    async def main():
        at = cluster()
        await runs(at, "stays-0", "10Gi", 0, priority=10)
        await runs(at, "stays-1", "10Gi", 1, priority=10)
        await waits(at, "urgent")
        await asyncio.sleep(50)
        assert called(at) == []
        at.api.delete("stays-1")
        await runs(at, "low", "10Gi", 1)
        at.api.asked.clear()
        await asyncio.sleep(16)
        assert evicted(at) == []
        assert called(at) == ["urgent"]
        tries(at, "urgent")
        await asyncio.sleep(7)
        assert evicted(at) == ["low"]

    run(main)


def test_it_is_off_if_the_setting_says_so():
    async def main():
        at = cluster()
        at.line.settings = Line(evict=False)
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(50)
        assert evicted(at) == []
        assert at.fleet.holds() == {}

    run(main)


def test_a_mistake_of_ours_does_not_end_the_server():
    async def main():
        at = cluster()
        await fragmented(at)
        works, at.preempting._due = at.preempting._due, lambda: 1 / 0
        await waits(at, "urgent")
        await asyncio.sleep(5)
        assert not any(task.done() for task in at.running)
        at.preempting._due = works
        await asyncio.sleep(2)
        assert evicted(at) == ["younger"]

    run(main)


def test_a_victim_on_two_cards_opens_both_for_two_pods():
    async def main():
        at = cluster()
        at.api.add(pod_json("wide", "20Gi", annotations={names.gpu_count("main"): "2"}))
        await at.bind("wide")
        for number in range(2):
            await waits(at, f"urgent-{number}", "12Gi", created=f"2030-03-0{number + 1}T00:00:00Z")
        await asyncio.sleep(10)
        assert evicted(at) == ["wide"]
        assert sorted(cards for _, cards in at.fleet.holds().values()) == [("GPU-n1-0",), ("GPU-n1-1",)]

    run(main)


def test_many_for_whom_nothing_can_be_done_are_looked_at_a_few_at_a_time_and_all_in_turn():
    async def main():
        at = cluster()
        for card in (0, 1):
            await runs(at, f"stays-{card}", "10Gi", card, priority=10)
        await runs(at, "low", "1Gi", 0)
        looks, find = list[tuple[float, str]](), at.preempting.finder.find

        async def counted(place, tenants):
            looks.append((at.clock() // 1, place.pod.metadata.name))
            return await find(place, tenants)

        at.preempting.finder.find = counted
        for number in range(40):
            await waits(at, f"urgent-{number}", f"{8000 + number}Mi")
        await asyncio.sleep(10)
        turns = Counter(turn for turn, _ in looks)
        assert max(turns.values()) <= 16
        assert len({name for _, name in looks}) == len(looks) == 40
        assert evicted(at) == []

    run(main)

"""A pod of high priority that fits a node by its sums and on no card: exactly those end who open one, or nobody."""

import asyncio
import json

import pytest
from kube.builders import MEMORY, node_json, pod_json
from kube.line.line_scene import called, run
from kube.line.urgent import cluster, evicted, fragmented, runs, stamp, told, tries, waits

from cotenant.dialects import names
from cotenant.kube.extender.messages import Args, MetaPod, MetaVictims, PreemptArgs
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.scheduling import victims


def test_the_one_whose_end_opens_a_card_is_evicted_and_the_pod_gets_that_card():
    async def main():
        at, counted = cluster(), []
        at.preempting.evicted = lambda: counted.append(1)
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]
        assert at.cluster.holds() == {"uid-urgent": ("n1", ("GPU-n1-1",))}
        assert told(at, "EvictedForGPU") == ["younger"]
        assert told(at, "EvictingForGPU") == ["urgent"]
        assert tries(at, "urgent") == []
        await asyncio.sleep(40)
        assert evicted(at) == ["younger"], "one opening, one eviction"
        at.api.drop("younger")
        await asyncio.sleep(1)
        assert called(at) == ["urgent"]
        assert tries(at, "urgent") == ["n1"]
        await at.bind("urgent")
        await asyncio.sleep(60)
        assert at.free() == [6, 4]
        assert evicted(at) == ["younger"]
        assert counted == [1]
        assert at.cluster.holds() == {}
        assert at.line.pressing == {}

    run(main)


def test_what_was_opened_is_kept_for_the_longest_backoff_of_the_scheduler():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(3)
        assert tries(at, "urgent") == []
        at.api.drop("younger")
        at.api.add(pod_json("small", "8Gi"))
        for _ in range(21):
            await asyncio.sleep(0.5)
            assert tries(at, "small") == []
        assert tries(at, "urgent") == ["n1"]
        await at.bind("urgent")
        assert evicted(at) == ["younger"]

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
        at.api.drop("younger")
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
        assert at.cluster.holds().keys() <= {"uid-p"}

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
        assert at.cluster.holds() == {}

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
        assert at.cluster.holds() == {"uid-urgent": ("n1", ("GPU-n1-0",))}
        at.api.drop("older")
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
        at.api.drop("low-2")
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
        assert at.api.asked("may evict") == ["low-3", "low-2"]
        assert at.cluster.holds()["uid-urgent"] == ("n1", ("GPU-n1-2", "GPU-n1-3"))

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
        assert at.cluster.holds().keys() == {"uid-modest"}

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
        assert {uid: cards for uid, (_, cards) in at.cluster.holds().items()} == {
            "uid-urgent-0": ("GPU-n1-1",),
            "uid-urgent-1": ("GPU-n1-0",),
            "uid-urgent-2": ("GPU-n2-0",),
        } or len(at.cluster.holds()) == 3
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
        assert at.cluster.holds()["uid-most-urgent"] == ("n1", ("GPU-n1-1",))
        for _ in range(5):
            tries(at, "urgent")
            await asyncio.sleep(2)
        assert evicted(at) == ["younger", "older"]
        assert at.cluster.holds()["uid-urgent"] == ("n1", ("GPU-n1-0",))

    run(main)


def test_cards_held_for_somebody_ahead_are_not_opened_for_one_behind():
    async def main():
        at = cluster(n1=(16,))
        at.api.add_node(node_json("n1", 16, **{MEMORY: "32Gi"}))
        await runs(at, "low", "10Gi", 0)
        at.api.add(pod_json("ahead", "16Gi", priority=50))
        at.decider.filter(Args(at.api.truth("ahead"), node_names=["n1"]))
        at.cluster.hold("uid-ahead", "n1", ["GPU-n1-0"])
        await waits(at, "urgent", "8Gi")
        at.line.settings = LineSettings(patience=0.0)
        await asyncio.sleep(20)
        assert evicted(at) == []

    run(main)


def test_the_search_for_a_pod_of_many_containers_is_limited_over_all_nodes(monkeypatch):
    async def main():
        at = cluster(**{f"n{i}": (80,) * 8 for i in range(20)})
        for i in range(20):
            for j in range(16):
                await runs(at, f"low{i}-{j}", "21Gi", j // 2, f"n{i}")
        urgent = pod_json("urgent", "20Gi", priority=10)
        (container,) = urgent["spec"]["containers"]
        urgent["spec"]["containers"] = [{**container, "name": f"c{i}"} for i in range(15)]
        at.api.add(urgent)
        assert tries(at, "urgent") == []
        placed, put_all = [], victims.put_all
        monkeypatch.setattr(victims, "put_all", lambda *args: placed.append(len(args[1])) or put_all(*args))
        await asyncio.sleep(3)
        assert sum(placed) <= 200_000
        assert evicted(at)
        assert at.cluster.holds().keys() == {"uid-urgent"}

    run(main)

"""How the evictions that open a card go: budgets, lost answers, lost leadership, pods that change meanwhile."""

import asyncio
from collections import Counter

from kube.builders import MEMORY, node_json, pod_json
from kube.fakeapi import lost, refused
from kube.line.line_scene import called, run
from kube.line.urgent import cluster, evicted, fragmented, runs, tries, waits

from cotenant.dialects import names
from cotenant.kube.api.errors import Forbidden, ServerFailed, TooManyRequests
from cotenant.kube.line.settings import LineSettings


def test_a_budget_that_forbids_it_makes_another_the_victim_and_holds_nothing_back():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [refused(TooManyRequests("budget", code=429))]
        await waits(at, "urgent")
        await asyncio.sleep(3)
        assert evicted(at) == ["younger"]
        assert at.cluster.holds() == {}
        await asyncio.sleep(10)
        assert evicted(at) == ["younger", "older"]
        assert at.cluster.holds() == {"uid-urgent": ("n1", ("GPU-n1-0",))}

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
        assert at.cluster.holds().keys() <= {"uid-urgent"}

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

        at.api.fates["may evict"] = [fine, budget, fine, budget]
        await waits(at, "urgent", "15Gi")
        await asyncio.sleep(20)
        assert evicted(at) == []
        assert at.cluster.holds() == {}

    run(main)


def test_without_the_right_to_evict_nothing_is_held_and_it_is_no_hot_loop():
    async def main():
        at = cluster()
        await fragmented(at)
        at.api.fates["evict"] = [refused(Forbidden("not allowed", code=403))] * 1000
        await waits(at, "urgent")
        await asyncio.sleep(50)
        assert 1 <= len(evicted(at)) <= 4
        assert at.cluster.holds() == {}

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
        assert at.cluster.holds() == {"uid-urgent": ("n1", ("GPU-n1-1",))}

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
        assert at.cluster.holds() == {}

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
            api.drop("younger")
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
            api.drop("urgent")

        at.api.fates["evict"] = [and_then_it_is_deleted]
        await waits(at, "urgent", "16Gi")
        await asyncio.sleep(20)
        assert len(evicted(at)) == 1
        assert at.cluster.holds() == {}
        assert at.line.pressing == {}

    run(main)


def test_one_that_still_does_not_fit_when_its_victims_are_gone_tries_again():
    async def main():
        at = cluster()
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(2)
        assert evicted(at) == ["younger"]
        at.api.drop("younger")
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
        at.api.drop("stays-1")
        await runs(at, "low", "10Gi", 1)
        at.api.calls.clear()
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
        at.line.settings = LineSettings(evict=False)
        await fragmented(at)
        await waits(at, "urgent")
        await asyncio.sleep(50)
        assert evicted(at) == []
        assert at.cluster.holds() == {}

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
        assert sorted(cards for _, cards in at.cluster.holds().values()) == [("GPU-n1-0",), ("GPU-n1-1",)]

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

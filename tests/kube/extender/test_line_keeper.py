"""Who waits, in which order, and who is told to try again: enough for everybody, and never for nothing."""

import asyncio
import itertools
import json

from kube import virtual_time
from kube.extender.world import (
    GI,
    World,
    lost,
    node_json,
    pod_json,
    refused,
    typed,
    unschedulable,
)

from cotenant.core.demand import Demand
from cotenant.core.units import Memory
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, Share, SlotGrant
from cotenant.kube.errors import Conflict
from cotenant.kube.extender.messages import Args
from cotenant.kube.settings import Line


def run(main):
    return virtual_time.run(main())


def cluster(*cards: int, **line) -> World:
    loop = asyncio.get_running_loop()
    at = World(Line(**line), clock=loop.time, wall=lambda: 1.9e9 + loop.time())
    at.api.add_node(node_json("n1", *(cards or (16,))))
    at.running = asyncio.create_task(at.line.run())
    return at


def takes(at: World, name: str, size: int, card: int = 0, node: str = "n1") -> None:
    """A pod that runs there."""
    share = Share(f"GPU-{node}-{card}", size * GI)
    at.fleet.load(node, PodGrant(f"uid-{name}", (SlotGrant("main", (share,)),)))


def ends(at: World, name: str) -> None:
    at.fleet.release(f"uid-{name}")
    at.line.moved()


def asks(at: World, name: str) -> list[str]:
    """As kube-scheduler does: where it fits."""
    pod = at.api.truth(name)
    answer = json.loads(
        at.decider.filter(Args(pod, node_names=[node.metadata.name for node in at.api.nodes]))
    )
    return answer["NodeNames"]


def called(at: World) -> list[str]:
    return [name for verb, name in at.api.asked if verb == "patch"]


async def refused_pods(at: World, *pods) -> None:
    for body in pods:
        at.api.add(body)
        assert asks(at, body["metadata"]["name"]) == []
    await asyncio.sleep(0.01)
    assert called(at) == []


def test_a_hundred_that_wait_and_nothing_happens_are_left_alone():
    async def main():
        at = cluster()
        takes(at, "x", 14)
        await refused_pods(at, *(pod_json(f"p{i}", "4Gi") for i in range(100)))
        await asyncio.sleep(120)
        assert called(at) == []
        assert len(at.line) == 100

    run(main)


def test_changes_that_bring_no_room_call_nobody():
    async def main():
        at = cluster()
        takes(at, "x", 14)
        await refused_pods(at, *(pod_json(f"p{i}", "4Gi") for i in range(10)))
        for i in range(100):
            at.api.change("p1", lambda it, i=i: it["status"].update(message=f"{i}"))
            at.api.add_node(node_json("n1", 16, cpu=f"{i}"))
            await asyncio.sleep(0.3)
        assert called(at) == []

    run(main)


def test_one_room_calls_the_first_in_line():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(
            at,
            pod_json("young", "10Gi", created="2030-01-03T00:00:00Z"),
            pod_json("old", "10Gi", created="2030-01-01T00:00:00Z"),
            pod_json("middle", "10Gi", created="2030-01-02T00:00:00Z"),
            pod_json("urgent", "10Gi", created="2030-01-04T00:00:00Z", priority=5),
        )
        places = [at.line.place_of(f"uid-{name}") for name in ("urgent", "old", "middle", "young")]
        assert places == [1, 2, 3, 4]
        for name in ("urgent", "old", "middle", "young"):
            ends(at, "x")
            await asyncio.sleep(0.01)
            assert called(at)[-1] == name
            assert asks(at, name) == ["n1"]
            await at.bind(name)
            await asyncio.sleep(1)
            assert called(at)[-1] == name, "one room, one call"
            at.fleet.release(f"uid-{name}")
            takes(at, "x", 16)
        assert len(at.line) == 0
        assert len(called(at)) == 4

    run(main)


def test_room_for_three_calls_three_in_order():
    async def main():
        at = cluster(16)
        takes(at, "x", 16)
        await refused_pods(
            at, *(pod_json(f"p{i}", "5Gi", created=f"2030-01-0{i + 1}T00:00:00Z") for i in range(5))
        )
        ends(at, "x")
        await asyncio.sleep(0.01)
        assert called(at) == ["p0", "p1", "p2"]

    run(main)


def test_who_does_not_follow_is_called_again_less_and_less_often():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        ends(at, "x")
        times = []
        while len(times) < 9:
            before = len(called(at))
            await asyncio.sleep(0.5)
            times += [asyncio.get_running_loop().time()] * (len(called(at)) - before)
        pauses = [round(b - a) for a, b in itertools.pairwise(times)]
        assert all(2 <= pause <= 61 for pause in pauses)
        assert pauses == sorted(pauses)
        assert pauses[-2:] == [60, 60]

    run(main)


def test_nobody_is_called_for_room_that_is_gone_again():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        ends(at, "x")
        await asyncio.sleep(0.01)
        takes(at, "y", 16)
        await asyncio.sleep(200)
        assert called(at) == ["a"]
        ends(at, "y")
        await asyncio.sleep(61)
        assert called(at)[:2] == ["a", "a"]

    run(main)


def test_refused_again_it_is_called_at_once_when_there_is_new_room():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        for round_ in range(1, 6):
            ends(at, "x")
            await asyncio.sleep(0.01)
            assert called(at) == ["a"] * round_
            takes(at, "x", 16)
            assert asks(at, "a") == []
            await asyncio.sleep(0.01)

    run(main)


def test_somebody_who_stays_away_does_not_keep_room_from_those_behind():
    """Its node selector, say, fits no node: kube-scheduler never asks us about it."""

    async def main():
        at = cluster()
        takes(at, "x", 16)
        head = pod_json("head", "10Gi", created="2029-01-01T00:00:00Z", priority=9)
        unschedulable(head)
        at.api.add(head)
        assert at.line.place_of("uid-head") == 1
        await refused_pods(at, pod_json("behind", "10Gi"))
        for _ in range(5):
            ends(at, "x")
            await asyncio.sleep(5)
            assert "behind" in called(at), "within five seconds"
            at.api.asked.clear()
            takes(at, "x", 16)
            assert asks(at, "behind") == []
            await asyncio.sleep(100)
            at.api.asked.clear()

    run(main)


def says(at: World, name: str, message: str) -> None:
    """kube-scheduler has tried it, in vain."""

    def change(body):
        unschedulable(body)
        body["status"]["conditions"][0]["message"] = f"0/1 nodes are available: {message}."

    at.api.change(name, change)


def test_somebody_whom_something_else_keeps_is_not_in_the_line():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        at.api.add(pod_json("a", "16Gi"))
        says(at, "a", "1 node(s) didn't match Pod's node affinity/selector")
        assert len(at.line) == 0
        says(at, "a", f"1 Insufficient cpu, 1 Insufficient {names.GPU_MEMORY}")
        assert at.line.place_of("uid-a") == 1

    run(main)


def test_somebody_who_turns_out_to_be_kept_by_something_else_makes_way_at_once():
    """Twenty that want more CPU than there is would each be called twice, seconds apart, before the next."""

    async def main():
        at = cluster(patience=10.0)
        takes(at, "x", 16)
        for number in range(20):
            at.api.add(pod_json(f"p{number:02}", "16Gi", created="2029-01-01T00:00:00Z"))
            says(at, f"p{number:02}", f"1 Insufficient cpu, 1 Insufficient {names.GPU_MEMORY}")
        await refused_pods(at, pod_json("behind", "16Gi"))
        await asyncio.sleep(20)
        assert at.fleet.holds() != {}
        ends(at, "x")
        for _ in range(20):
            await asyncio.sleep(0.05)
            says(at, called(at)[-1], "1 Insufficient cpu")
        await asyncio.sleep(0.05)
        assert called(at)[-1] == "behind"
        assert asks(at, "behind") == ["n1"]

    run(main)


def test_what_was_said_before_it_was_refused_by_us_turns_nobody_away():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        at.api.add(pod_json("a", "16Gi"))
        says(at, "a", "1 Insufficient cpu")
        assert asks(at, "a") == []
        at.api.change("a", lambda it: it["metadata"]["annotations"].update(note="x"))
        assert at.line.place_of("uid-a") == 1

    run(main)


def test_somebody_who_stays_away_is_not_called_at_every_sweep():
    async def main():
        at = cluster()
        pods = [pod_json(f"p{i}", "1Gi") for i in range(10)]
        for body in pods:
            unschedulable(body)
            at.api.add(body)
        await asyncio.sleep(600)
        at.api.asked.clear()
        await asyncio.sleep(600)
        assert 0 < len(called(at)) <= 10 * 11, "about once a minute each"

    run(main)


def test_room_on_a_new_node_is_told():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        at.api.add_node(node_json("n2", 16))
        await asyncio.sleep(0.01)
        assert called(at) == ["a"]

    run(main)


def test_nobody_is_called_for_a_node_where_it_may_not_go():
    async def main():
        at = cluster()
        at.api.add_node(node_json("n2", 16))
        takes(at, "x", 16)
        takes(at, "y", 16, node="n2")
        at.api.add(pod_json("a", "4Gi"))
        at.decider.filter(Args(at.api.truth("a"), node_names=["n1"]))
        ends(at, "y")
        await asyncio.sleep(100)
        assert called(at) == []
        assert at.charged() == {"uid-x": "n1"}
        at.line.add(at.api.truth("a"), (Demand(Memory(4 * GI)),))  # bind found no room
        await asyncio.sleep(100)
        assert called(at) == []
        ends(at, "x")
        await asyncio.sleep(0.01)
        assert called(at) == ["a"]

    run(main)


def test_after_its_patience_room_is_held_for_the_head():
    async def main():
        at = cluster(16, patience=60.0)
        takes(at, "x", 8)
        takes(at, "y", 8)
        await refused_pods(
            at, pod_json("big", "16Gi"), pod_json("small", "4Gi", created="2031-01-01T00:00:00Z")
        )
        await asyncio.sleep(62)
        assert at.fleet.holds() == {"uid-big": ("n1", ("GPU-n1-0",))}
        ends(at, "x")
        await asyncio.sleep(5)
        assert called(at) == [], "what drains is not given to the small one"
        answer = json.loads(at.decider.filter(Args(at.api.truth("small"), node_names=["n1"])))
        assert "held" in answer["FailedNodes"]["n1"]
        ends(at, "y")
        await asyncio.sleep(0.01)
        assert called(at) == ["big"]
        assert asks(at, "big") == ["n1"]
        await at.bind("big")
        assert at.fleet.holds() == {}

    run(main)


def test_a_hold_ends_with_the_pod_and_with_the_term():
    async def main():
        at = cluster(16, patience=1.0)
        takes(at, "x", 8)
        await refused_pods(at, pod_json("big", "16Gi"))
        await asyncio.sleep(3)
        assert at.fleet.holds()
        at.api.delete("big")
        assert at.fleet.holds() == {}
        at.api.add(pod_json("big", "16Gi"))
        assert asks(at, "big") == []
        await asyncio.sleep(3)
        assert at.fleet.holds()
        at.line.refill()  # it has not been tried in vain, as far as the API server says
        await asyncio.sleep(1)
        assert len(at.line) == 0
        assert at.fleet.holds() == {}

    run(main)


def test_bound_deleted_or_ended_it_does_not_wait():
    async def main():
        at = cluster()
        for do in (
            lambda: at.api.delete("a"),
            lambda: at.api.change("a", lambda it: it["status"].update(phase="Failed")),
            lambda: at.api.change("a", lambda it: it["spec"].update(nodeName="n9")),
            lambda: at.api.change(
                "a", lambda it: it["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z")
            ),
        ):
            at.api.add(pod_json("a", "17Gi"))
            asks(at, "a")
            assert len(at.line) == 1
            last = at.api.truth("a")
            do()
            assert len(at.line) == 0
            if ("web", "a") in at.api.objects:  # kube-scheduler is late
                at.decider.filter(Args(last, node_names=["n1"]))
                assert len(at.line) == 0
                at.api.delete("a")

    run(main)


def test_a_pod_that_was_gone_when_it_was_refused_is_forgotten():
    async def main():
        at = cluster()
        takes(at, "x", 10)
        ghost = typed(pod_json("ghost", "10Gi", uid="gone"))
        at.decider.filter(Args(ghost, node_names=["n1"]))
        assert len(at.line) == 1, "it may be so new that we have not heard of it"
        await asyncio.sleep(40)
        assert len(at.line) == 0
        assert called(at) == []

    run(main)


def test_a_pod_made_anew_is_not_called_for_the_one_before():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        at.api.at_once = False
        at.api.delete("a")
        at.api.add(pod_json("a", "4Gi", uid="second"))
        ends(at, "x")
        await asyncio.sleep(0.01)
        assert names.RETRY not in at.api.truth("a").metadata.annotations
        at.api.deliver()
        assert len(at.line) == 0

    run(main)


def test_a_conflict_with_other_writers_forgets_nobody():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        at.api.fates["patch"] = [refused(Conflict("try again", code=409)), lost(before=True)]
        ends(at, "x")
        await asyncio.sleep(10)
        assert called(at)[:3] == ["a", "a", "a"]
        assert names.RETRY in at.api.truth("a").metadata.annotations

    run(main)


def test_a_new_term_knows_those_who_wait():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        for i, change in enumerate((unschedulable, lambda _: None, unschedulable)):
            body = pod_json(f"p{i}", "4Gi")
            change(body)
            at.api.add(body)
        gated = pod_json("gated", "4Gi")
        gated["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        ]
        at.api.add(gated)
        other = pod_json("other", None, cpu="1")
        unschedulable(other)
        at.api.add(other)
        at.line.refill()
        assert {uid for uid in ("p0", "p1", "p2", "gated", "other") if at.line.place_of(f"uid-{uid}")} == {
            "p0",
            "p2",
        }
        ends(at, "x")
        await asyncio.sleep(0.01)
        assert sorted(called(at)) == ["p0", "p2"]

    run(main)


def test_room_that_was_there_before_the_term_is_found_at_once():
    async def main():
        at = cluster()
        body = pod_json("a", "4Gi")
        unschedulable(body)
        at.lead.seconds = 0
        at.api.add(body)
        await asyncio.sleep(20)
        assert called(at) == []
        at.lead.seconds = 1e9
        at.line.refill()
        await asyncio.sleep(0.01)
        assert called(at) == ["a"]

    run(main)


def test_who_does_not_lead_calls_nobody_and_tells_nothing():
    async def main():
        at = cluster()
        at.lead.seconds = 0
        takes(at, "x", 16)
        body = pod_json("a", "4Gi")
        unschedulable(body)
        at.api.add(body)
        bad = pod_json("bad", "4Gi", annotations={names.PLACEMENT: "nonsense"})
        unschedulable(bad)
        at.api.add(bad)
        ends(at, "x")
        await asyncio.sleep(30)
        assert at.api.asked == []
        assert at.teller._waiting == {}

    run(main)


def test_wishes_that_change_are_heard():
    async def main():
        at = cluster(16, 16)
        takes(at, "x", 10, card=0)
        await refused_pods(at, pod_json("a", "8Gi", annotations={names.GPU_UUID: "GPU-n1-0"}))
        at.api.change("a", lambda it: it["metadata"]["annotations"].update({names.GPU_UUID: "GPU-n1-1"}))
        await asyncio.sleep(16)
        assert called(at)[:1] == ["a"]

    run(main)


def test_somebody_who_stays_away_cannot_hold_a_card_by_changing_its_annotations():
    async def main():
        at = cluster(patience=10.0)
        takes(at, "x", 16)
        away = pod_json("away", "16Gi")
        unschedulable(away)
        at.api.add(away)
        await asyncio.sleep(20)
        assert "uid-away" in at.fleet.holds()
        ends(at, "x")
        for second in range(10):
            at.api.change("away", lambda it, now=second: it["metadata"]["annotations"].update(note=str(now)))
            await asyncio.sleep(1)
        assert at.fleet.holds() == {}

    run(main)


def test_wishes_that_become_nonsense_do_not_wait():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "8Gi"))
        at.api.change("a", lambda it: it["metadata"]["annotations"].update({names.PLACEMENT: "nonsense"}))
        assert len(at.line) == 0
        assert [reason for _, reason in at.teller._waiting] == ["WaitingForGPU", "GPUDemandRefused"]

    run(main)


def test_our_own_call_changes_no_wish():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        ends(at, "x")
        await asyncio.sleep(0.01)
        assert called(at) == ["a"]
        await asyncio.sleep(1.5)
        assert called(at) == ["a"]

    run(main)


def test_a_called_pod_is_told_of_by_an_annotation_guarded_by_uid():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "4Gi"))
        ends(at, "x")
        await asyncio.sleep(0.01)
        assert float(at.api.truth("a").metadata.annotations[names.RETRY]) >= 1.9e9

    run(main)


def test_a_slow_api_server_does_not_stop_the_line():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, *(pod_json(f"p{i}", "1Gi") for i in range(16)))
        at.api.fates["patch"] = [lost(before=True)] * 16
        ends(at, "x")
        await asyncio.sleep(30)
        retried = set(called(at)[16:])
        assert retried == {f"p{i}" for i in range(16)}

    run(main)

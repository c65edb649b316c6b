"""Who waits, in which order, and who is told to try again: enough for everybody, and never for nothing."""

import asyncio
import json

from kube.builders import GI, node_json, pod_json, typed, unschedulable
from kube.fakeapi import lost, refused
from kube.line.line_scene import asks, called, cluster, ends, refused_pods, run, takes

from cotenant.core.demand import Demand
from cotenant.core.units import Memory
from cotenant.dialects import names
from cotenant.kube.api.errors import Conflict
from cotenant.kube.api.resources import PODS
from cotenant.kube.extender.messages import Args
from cotenant.kube.nodes.opening_mark import write_mark


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
            at.cluster.release(f"uid-{name}")
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
        assert at.cluster.holds() == {"uid-big": ("n1", ("GPU-n1-0",))}
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
        assert at.cluster.holds() == {}

    run(main)


def test_a_hold_ends_with_the_pod_and_with_the_term():
    async def main():
        at = cluster(16, patience=1.0)
        takes(at, "x", 8)
        await refused_pods(at, pod_json("big", "16Gi"))
        await asyncio.sleep(3)
        assert at.cluster.holds()
        at.api.drop("big")
        assert at.cluster.holds() == {}
        at.api.add(pod_json("big", "16Gi"))
        assert asks(at, "big") == []
        await asyncio.sleep(3)
        assert at.cluster.holds()
        at.line.refill()  # it has not been tried in vain, as far as the API server says
        await asyncio.sleep(1)
        assert len(at.line) == 0
        assert at.cluster.holds() == {}

    run(main)


def test_while_room_is_opened_for_it_elsewhere_nothing_is_held_for_it_until_that_is_over():
    async def main():
        at = cluster(16, patience=1.0)
        takes(at, "x", 8)
        await refused_pods(at, pod_json("big", "16Gi"))
        await asyncio.sleep(3)
        held = at.cluster.holds()
        assert held.keys() == {"uid-big"}
        marked = node_json("n2", 16)
        until = at.line.wall() + 60
        marked["metadata"]["annotations"][names.DEFRAG] = write_mark(["GPU-n2-0"], until, "uid-big")
        marked["metadata"]["annotations"][names.DRAINED] = "GPU-n2-0"
        at.api.add_node(marked)
        await asyncio.sleep(0.01)
        assert at.cluster.holds() == {}, "at once"
        await asyncio.sleep(50)
        assert at.cluster.holds() == {}
        at.line.refill()
        await refused_pods(at, pod_json("big", "16Gi"))
        await asyncio.sleep(5)
        assert at.cluster.holds() == {}, "nor by the next leader"
        await asyncio.sleep(20)
        assert at.cluster.holds() == held, "the command has been killed"

    run(main)


def test_bound_deleted_or_ended_it_does_not_wait():
    async def main():
        at = cluster()
        for do in (
            lambda: at.api.drop("a"),
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
            if at.api.has(PODS, "a", "web"):  # kube-scheduler is late
                at.decider.filter(Args(last, node_names=["n1"]))
                assert len(at.line) == 0
                at.api.drop("a")

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
        at.api.drop("a")
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
        assert at.api.calls == []
        assert at.recorder._waiting == {}

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

"""Who does not come when it is called, cannot come, or wants something else by now: it keeps no room from others."""

import asyncio
import itertools
import json

import pytest
from kube.builders import node_json, pod_json, unschedulable
from kube.fakeapi import hangs, lost
from kube.line.line_scene import asks, called, cluster, ends, refused_pods, run, takes
from kube.world import World

from cotenant.dialects import names
from cotenant.kube.api.errors import Unreachable
from cotenant.kube.extender.messages import Args
from cotenant.kube.scheduling.reasons import BEING_BOUND


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
            at.api.calls.clear()
            takes(at, "x", 16)
            assert asks(at, "behind") == []
            await asyncio.sleep(100)
            at.api.calls.clear()

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
        assert at.cluster.holds() != {}
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
        at.api.calls.clear()
        await asyncio.sleep(600)
        assert 0 < len(called(at)) <= 10 * 11, "about once a minute each"

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
        assert "uid-away" in at.cluster.holds()
        ends(at, "x")
        for second in range(10):
            at.api.change("away", lambda it, now=second: it["metadata"]["annotations"].update(note=str(now)))
            await asyncio.sleep(1)
        assert at.cluster.holds() == {}

    run(main)


def test_wishes_that_become_nonsense_do_not_wait():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        await refused_pods(at, pod_json("a", "8Gi"))
        at.api.change("a", lambda it: it["metadata"]["annotations"].update({names.PLACEMENT: "nonsense"}))
        assert len(at.line) == 0
        assert [reason for _, reason in at.recorder._waiting] == ["WaitingForGPU", "GPUDemandRefused"]

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


def test_a_pod_that_was_told_that_it_is_being_bound_stays_in_line_until_that_is_settled():
    """Its Binding's answer was lost; kube-scheduler tries again, and gets this for every other node."""

    async def main():
        at = cluster()
        at.api.add_node(node_json("n2", 16))
        at.api.add(pod_json("a", "4Gi"))
        silent = [lost(before=True)] * 3
        at.api.fates = {"bind": [lost(before=True)], "patch": [*silent], "get": [*silent]}
        with pytest.raises(Unreachable):
            await at.bind("a")
        answer = json.loads(at.decider.filter(Args(at.api.truth("a"), node_names=["n2"])))
        assert answer["FailedNodes"] == {"n2": BEING_BOUND}
        says(at, "a", f"1 {BEING_BOUND}")
        assert at.line.place_of("uid-a") == 1
        await at.settled()
        before = len(called(at))
        assert at.charged() == {}
        await asyncio.sleep(3)
        assert called(at)[before:], "now it fits, and is told so"

    run(main)


def test_a_pod_that_is_being_bound_is_not_called():
    async def main():
        at = cluster()
        at.api.add(pod_json("a", "4Gi"))
        at.api.fates["bind"] = [hangs(asyncio.Event())]
        asked = asyncio.create_task(at.bind("a"))
        await asyncio.sleep(0.01)
        says(at, "a", f"1 {BEING_BOUND}")
        assert at.line.place_of("uid-a") == 1
        await asyncio.sleep(100)
        assert called(at) == []
        asked.cancel()

    run(main)


async def held_for(at: World, name: str) -> None:
    """It has waited for longer than its patience; then its room is free, and it is called."""
    takes(at, "x", 16)
    await refused_pods(at, pod_json(name, "16Gi"))
    await asyncio.sleep(20)
    assert at.cluster.holds() == {f"uid-{name}": ("n1", ("GPU-n1-0",))}
    assert asks(at, name) == []  # kube-scheduler tries it, and its backoff begins
    ends(at, "x")
    await asyncio.sleep(0.1)
    assert called(at) == [name]


def test_cards_stay_held_for_the_longest_backoff_of_the_scheduler():
    async def main():
        at = cluster(patience=10.0)
        await held_for(at, "a")
        at.api.add(pod_json("later", "4Gi", created="2031-01-01T00:00:00Z"))
        for _ in range(19):
            await asyncio.sleep(0.5)
            assert "uid-a" in at.cluster.holds()
            assert asks(at, "later") == []
        assert asks(at, "a") == ["n1"]
        await at.bind("a")
        assert at.charged() == {"uid-a": "n1"}
        assert at.cluster.holds() == {}

    run(main)


def test_cards_are_given_up_when_the_backoff_has_passed_without_an_attempt():
    async def main():
        at = cluster(patience=10.0)
        await held_for(at, "a")
        await asyncio.sleep(14)
        assert at.cluster.holds() == {}
        at.api.add(pod_json("later", "4Gi", created="2031-01-01T00:00:00Z"))
        assert asks(at, "later") == ["n1"]

    run(main)


def test_cards_are_given_up_soon_after_an_attempt_that_came_to_nothing():
    async def main():
        at = cluster(patience=10.0)
        await held_for(at, "a")
        assert asks(at, "a") == ["n1"], "and then a volume, say, keeps it"
        await asyncio.sleep(1.5)
        assert "uid-a" in at.cluster.holds()
        await asyncio.sleep(2.5)
        assert at.cluster.holds() == {}

    run(main)


def test_a_scheduler_with_a_longer_backoff_is_waited_for_as_the_settings_say():
    async def main():
        at = cluster(patience=10.0, backoff=60.0)
        await held_for(at, "a")
        await asyncio.sleep(58)
        assert "uid-a" in at.cluster.holds()
        await asyncio.sleep(6)
        assert at.cluster.holds() == {}

    run(main)


def test_who_is_waited_for_is_not_called_over_and_over():
    async def main():
        at = cluster(patience=10.0)
        await held_for(at, "a")
        await asyncio.sleep(10)
        assert len(called(at)) <= 4

    run(main)


def test_who_is_tried_over_and_over_and_never_bound_holds_nothing():
    """A volume keeps it, say, or it may not be changed: kube-scheduler tries it every two seconds, and it fits."""

    async def main():
        at = cluster(patience=10.0)
        await held_for(at, "a")
        at.api.add(pod_json("later", "4Gi", created="2031-01-01T00:00:00Z"))
        for _ in range(4):
            assert asks(at, "a") == ["n1"]
            await asyncio.sleep(1)
        for _ in range(40):
            assert at.cluster.holds() == {}
            assert asks(at, "a") == ["n1"]
            assert asks(at, "later") == ["n1"]
            await asyncio.sleep(1)

    run(main)

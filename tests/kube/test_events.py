"""Events about pods: one object for each reason, at most one write a minute, and never a harm to anybody."""

import asyncio
import re

from kube import virtual_time
from kube.builders import pod_json, typed
from kube.fakeapi import lost, refused
from kube.world import WatchedApi

from cotenant.kube.api.errors import Forbidden
from cotenant.kube.events import MOST, EventRecorder

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def told(main) -> None:
    async def whole():
        loop = asyncio.get_running_loop()
        api = WatchedApi()
        recorder = EventRecorder(api, clock=loop.time)
        running = asyncio.create_task(recorder.run())
        await main(api, recorder)
        assert not running.done()
        running.cancel()

    virtual_time.run(whole())


def test_an_event_says_what_and_of_whom():
    async def main(api, recorder):
        recorder.record(typed(pod_json("a")), "WaitingForGPU", "4Gi asked")
        await asyncio.sleep(0.1)
        (event,) = api.events
        assert event["reason"] == "WaitingForGPU"
        assert event["message"] == "4Gi asked"
        assert event["type"] == "Warning"
        assert event["count"] == 1
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "web",
            "name": "a",
            "uid": "uid-a",
        }
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event["lastTimestamp"])

    told(main)


def test_one_object_for_a_pod_and_reason_and_one_write_a_minute():
    async def main(api, recorder):
        pod = typed(pod_json("a"))
        for at in range(300):
            recorder.record(pod, "WaitingForGPU", f"{at}")
            await asyncio.sleep(1)
        assert len({event["metadata"]["name"] for event in api.events}) == 1
        assert [event["count"] for event in api.events] == [1, 2, 3, 4, 5]
        assert len({event["firstTimestamp"] for event in api.events}) == 1
        recorder.record(pod, "GPUDemandRefused", "why")
        await asyncio.sleep(0.1)
        assert len({event["metadata"]["name"] for event in api.events}) == 2

    told(main)


def test_of_what_waits_to_be_written_the_last_is():
    async def main(api, recorder):
        for at in range(10):
            recorder.record(typed(pod_json("a")), "WaitingForGPU", f"{at}")
        await asyncio.sleep(0.1)
        assert [event["message"] for event in api.events] == ["9"]

    told(main)


def test_a_text_is_worked_out_only_if_it_is_written_and_may_have_become_pointless():
    async def main(api, recorder):
        asked = []

        def gone():
            asked.append("gone")
            raise KeyError("uid-a")

        def bug():
            asked.append("bug")
            raise ZeroDivisionError

        recorder.record(typed(pod_json("a")), "WaitingForGPU", gone)
        recorder.record(typed(pod_json("b")), "WaitingForGPU", bug)
        recorder.record(typed(pod_json("c")), "WaitingForGPU", lambda: "text")
        recorder.record(typed(pod_json("c")), "WaitingForGPU", lambda: "newer")
        await asyncio.sleep(0.1)
        assert asked == ["gone", "bug"]
        assert [event["message"] for event in api.events] == ["newer"]

    told(main)


def test_an_api_server_that_refuses_or_is_silent_harms_nobody():
    async def main(api, recorder):
        api.fates["apply events"] = [refused(Forbidden("no", code=403)), lost(before=True)] * 10
        for at in range(20):
            recorder.record(typed(pod_json(f"p{at}")), "WaitingForGPU", "text")
        await asyncio.sleep(1)
        recorder.record(typed(pod_json("a")), "WaitingForGPU", "text")
        await asyncio.sleep(1)
        assert [event["involvedObject"]["name"] for event in api.events] == ["a"]

    told(main)


def test_what_cannot_be_written_soon_is_dropped():
    async def main(api, recorder):
        for at in range(3 * MOST):
            recorder.record(typed(pod_json(f"p{at}")), "WaitingForGPU", "text")
        assert len(recorder._waiting) == MOST
        await asyncio.sleep(1)
        assert len(api.events) == MOST

    told(main)


def test_nothing_is_kept_of_a_pod_that_is_gone():
    async def main(api, recorder):
        recorder.record(typed(pod_json("a")), "WaitingForGPU", "text")
        await asyncio.sleep(0.1)
        recorder.record(typed(pod_json("b")), "WaitingForGPU", "text")
        recorder.forget("uid-a")
        recorder.forget("uid-b")
        recorder.forget("never-seen")
        await asyncio.sleep(0.1)
        assert len(api.events) == 1
        assert recorder._told == {}
        assert recorder._waiting == {}

    told(main)


def test_an_event_has_a_valid_name_whatever_the_pod_is_called():
    async def main(api, recorder):
        uid = "5D5E3B3C-e0a7-4c62-9d0e-6ee0b1f6a4f2"
        names = ["a", "a.b-c", "x" * 253, "x" * 221 + "-" * 10 + "y" * 22, ("x." * 126) + "y"]
        for at, name in enumerate(names):
            recorder.record(typed(pod_json(name, uid=f"{uid}{at}")), "WaitingForGPU", "é" * 5000)
        await asyncio.sleep(0.1)
        assert len(api.events) == len(names)
        for event in api.events:
            assert NAME.fullmatch(event["metadata"]["name"]), event["metadata"]["name"]
            assert len(event["metadata"]["name"]) <= 253
            assert len(event["message"]) <= 1024

    told(main)

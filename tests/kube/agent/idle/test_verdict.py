"""When a pod is idle on its GPUs, and when nobody knows."""

from __future__ import annotations

import pytest

from cotenant.kube.agent.idle.verdict import SECOND, Activity, verdict

NOW, AFTER = 1000 * SECOND, 10 * SECOND


def ago(seconds: float, container: str = "main", **more: object) -> Activity:
    return Activity(container, NOW - round(seconds * SECOND), **{"used": True, **more})  # type: ignore[arg-type]


def judged(*activities: Activity) -> tuple[str, str]:
    found = verdict(activities, NOW, AFTER)
    return found.status, found.reason


def test_a_container_is_idle_after_some_seconds_without_activity_and_since_then() -> None:
    assert judged(ago(9.9)) == ("False", "Working")
    idle = verdict([ago(10)], NOW, AFTER)
    assert (idle.status, idle.reason, idle.at) == ("True", "NoActivity", NOW - AFTER)
    assert idle.message == "container main has launched no kernel and allocated no GPU memory since"


def test_every_container_must_be_idle_and_the_latest_decides_since_when() -> None:
    assert judged(ago(500), ago(3, "two")) == ("False", "Working")
    idle = verdict([ago(500), ago(30, "two"), ago(70, "three")], NOW, AFTER)
    assert (idle.status, idle.at) == ("True", NOW - 30 * SECOND)
    assert idle.message.startswith("containers main, two, three have")


def test_a_container_that_never_used_its_gpu_is_idle_since_it_got_it() -> None:
    assert judged(ago(3, used=False)) == ("False", "Starting")
    idle = verdict([ago(60, used=False)], NOW, AFTER)
    assert (idle.status, idle.reason, idle.at) == ("True", "NeverUsed", NOW - 60 * SECOND)
    assert idle.message == "container main has not used a GPU since"
    assert judged(ago(60, used=False), ago(90, "two")) == ("True", "NoActivity")


def test_a_container_that_has_not_started_or_is_loading_is_not_idle() -> None:
    assert judged(ago(60), Activity("late", starting="has not started")) == ("False", "Starting")


def test_what_cannot_be_seen_is_unknown_and_never_idle() -> None:
    hidden = ago(500, "hidden", unseen="its program is static")
    found = verdict([ago(60), hidden], NOW, AFTER)
    assert (found.status, found.reason, found.at) == ("Unknown", "NotMeasured", NOW)
    assert found.message == "container hidden: its program is static"
    assert judged(hidden) == ("Unknown", "NotMeasured")
    assert judged(ago(1), hidden) == ("False", "Working"), "one that works is enough"
    half_seen = ago(1, unseen="one of its programs is static")
    assert judged(half_seen) == ("False", "Working")


@pytest.mark.parametrize("count", [4, 5, 1024])
def test_a_pod_of_any_number_of_containers_has_a_short_message(count: int) -> None:
    found = verdict([ago(60, f"c{at}") for at in range(count)], NOW, AFTER)
    assert len(found.message) < 150
    assert ("more" in found.message) == (count > 4)


def test_activity_later_than_the_look_is_work() -> None:
    assert judged(ago(-0.5)) == ("False", "Working")

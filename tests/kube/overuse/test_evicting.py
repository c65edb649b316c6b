"""Pods over their limit are evicted only where the policy says so, after a time, and never past a budget."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from kube.fakeapi import FakeApi, refused

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.api.errors import Forbidden, KubeError, ServerFailed, TooManyRequests, Unreachable
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import NAMESPACES, PODS
from cotenant.kube.api.store import Change, Store
from cotenant.kube.events import EventRecorder
from cotenant.kube.overuse.evicting import OveruseEvicting
from cotenant.kube.overuse.policy import eviction_of
from cotenant.kube.overuse.settings import LimitsSettings
from cotenant.kube.pods.limit_held import message

SAID = message("shim", "watch", "container main holds 3Gi on GPU 0, 1Gi more than its limit of 2Gi")


@dataclass
class World:
    evict: Any = "on"
    gone: str | None = None
    leads: bool = True
    time: float = 100.0
    events: list[tuple[str, str]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api, self.pods = FakeApi(fully_guarded=False), Store[Pod]()
        self.api.put(NAMESPACES, {"metadata": {"name": "team"}})
        recorder = EventRecorder(self.api)  # type: ignore[arg-type]
        recorder.record = lambda pod, reason, text, **_: self.events.append((reason, text))  # type: ignore[method-assign,misc,assignment]

        async def now(pod: Pod, reason: str, text: str) -> None:
            self.events.append((reason, text))

        recorder.record_now = now  # type: ignore[method-assign]
        self.evicting = OveruseEvicting(
            self.api,  # type: ignore[arg-type]
            self.pods,
            LimitsSettings(self.evict, 30.0),
            recorder,
            self.must_lead,
            lambda _: self.gone,
            clock=lambda: self.time,
            counted=self.outcomes.append,
        )
        self.pods.subscribe(self.evicting.on_pod)

    def must_lead(self, _: float) -> None:
        if not self.leads:
            raise CotenantError("another leads")

    def label(self, value: str) -> None:
        labels = {names.EVICT_OVER_LIMIT: value}
        self.api.put(NAMESPACES, {"metadata": {"name": "team", "labels": labels}})

    def pod(self, reason: str = "OverLimit", status: str = "False", own: str = "") -> None:
        said = {"type": names.GPU_LIMIT_HELD, "status": status, "reason": reason, "message": SAID}
        meta = {"name": "web", "uid": "u-1", "annotations": {names.EVICT_OVER_LIMIT: own}}
        body = {
            "metadata": meta,
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [said]},
        }
        self.api.put(PODS, body, "team")
        self.pods.put(self.api.read(PODS, "web", "team"))

    def wait(self, seconds: float) -> list[str]:
        """The pods that were evicted so far."""
        for _ in range(round(seconds)):
            self.time += 1
            asyncio.run(self.evicting.turn())
        return self.api.asked("evict")


def test_after_a_time_and_once():
    world = World()
    world.pod()
    assert world.wait(29) == []
    assert world.wait(1) == ["web"]
    ((reason, said),) = world.events
    assert reason == "EvictedOverGPULimit"
    assert "by the setting limits.evict_over_limit: container main holds 3Gi on GPU 0" in said
    assert world.outcomes == ["evicted"]


def test_by_default_it_is_only_said_and_said_once():
    assert LimitsSettings().evict_over_limit == "dry-run"
    world = World("dry-run")
    world.pod()
    assert world.wait(200) == []
    ((reason, said),) = world.events
    assert reason == "GPUOverLimitDryRun"
    assert "it would be evicted, since it has been over its limit for more than 30s" in said
    assert world.outcomes == ["dry-run"]


def test_one_that_is_back_under_its_limit_has_the_whole_time_again():
    world = World()
    world.pod()
    world.wait(25)
    world.pod("Shim", "True")
    world.wait(10)
    world.pod()
    assert world.wait(29) == []
    assert world.wait(1) == ["web"]


def test_a_budget_is_kept_and_tried_again():
    world = World()
    world.api.fates["evict"] = [refused(TooManyRequests("budget web", code=429, retry_after=20.0))] * 2
    world.pod()
    assert world.wait(49) == ["web"]
    assert [reason for reason, _ in world.events] == ["GPUOverLimitNotEvicted"]
    assert world.wait(1) == ["web", "web"]
    assert world.wait(20) == ["web", "web", "web"]
    assert [reason for reason, _ in world.events] == ["GPUOverLimitNotEvicted", "EvictedOverGPULimit"]
    assert world.outcomes == ["refused", "evicted"]


@pytest.mark.parametrize("reason", ["NotHeld", "Watch", "Shim", "Driver"])
def test_for_no_other_reason(reason: str):
    world = World()
    world.pod(reason)
    assert world.wait(100) == []


def test_what_an_agent_wrote_that_does_not_report_any_more_is_not_believed():
    world = World(gone="the agent of node n1 has not reported for 40 s")
    world.pod()
    assert world.wait(100) == []
    world.gone = None
    assert world.wait(1) == ["web"]


def test_another_leader_waits_as_long_again():
    world = World()
    world.pod()
    world.wait(29)
    world.evicting.begin()
    assert world.wait(29) == []
    assert world.wait(1) == ["web"]


def test_one_that_does_not_lead_evicts_nobody():
    world = World(leads=False)
    world.pod()
    assert world.wait(100) == []
    assert world.events == []


def test_a_namespace_that_cannot_be_read_has_nobody_evicted():
    world = World()
    world.api.fails["get namespaces"] = Unreachable("away")
    world.pod()
    assert world.wait(60) == []
    del world.api.fails["get namespaces"]
    assert world.wait(10) == ["web"]


def test_an_eviction_that_fails_is_tried_again_later():
    world = World()
    world.api.fates["evict"] = [refused(Forbidden("no", code=403))]
    world.pod()
    assert world.wait(39) == ["web"]
    assert world.wait(1) == ["web", "web"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Forbidden("may not create pods/eviction", code=403), True),
        (ServerFailed("more than one PodDisruptionBudget", code=500), True),
        (Unreachable("away"), False),
    ],
)
def test_why_the_api_server_refuses_an_eviction_is_said_once(error: KubeError, told: bool):
    """A namespace's label may ask for what the server has no right to do."""
    world = World()
    world.api.fates["evict"] = [refused(error)] * 3
    world.pod()
    assert world.wait(50) == ["web"] * 3
    assert [reason for reason, _ in world.events] == ["GPUOverLimitNotEvicted"] * told
    assert all(str(error) in said for _, said in world.events)
    assert world.outcomes == ["refused"] * told


def test_a_pod_that_is_gone_or_going_is_left_alone():
    world = World()
    world.pod()
    leaving = world.pods.get("u-1")
    assert leaving is not None
    raw = msgspec.to_builtins(leaving)
    raw["metadata"]["deletionTimestamp"] = "2026-11-01T12:00:00Z"
    world.api.put(PODS, raw, "team")
    world.pods.put(world.api.read(PODS, "web", "team"))
    assert world.wait(100) == []
    world.evicting.on_pod(Change("deleted", leaving))
    assert world.wait(100) == []


@pytest.mark.parametrize(
    ("setting", "label", "annotation", "evicted"),
    [
        ("off", "on", "", True),
        ("on", "off", "", False),
        ("on", "dry-run", "", False),
        ("off", "", "on", True),
        ("on", "", "off", True),
        ("dry-run", "on", "off", True),
        ("on", "nonsense", "", True),
        ("dry-run", "yes", "true", False),
    ],
)
def test_administrators_decide_and_an_author_can_only_be_stricter(
    setting: str, label: str, annotation: str, evicted: bool
):
    world = World(setting)
    world.label(label)
    world.pod(own=annotation)
    assert world.wait(40)[:1] == (["web"] if evicted else [])


def test_where_it_comes_from_is_said():
    key = names.EVICT_OVER_LIMIT
    assert eviction_of("off", {}, {}) == ("off", "the setting limits.evict_over_limit")
    assert eviction_of("off", {key: "on"}, {}) == ("on", f"the namespace's label {key}")
    assert eviction_of("off", {key: "dry-run"}, {key: "on"}) == ("on", f"the pod's annotation {key}")

"""The condition of limits is written at changes only, whatever the figures do, and told once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from kube.fakeapi import FakeApi, refused

from cotenant.dialects import names
from cotenant.kube.agent.limits.reporting import LimitReporter
from cotenant.kube.agent.limits.verdict import Verdict
from cotenant.kube.api.errors import Forbidden
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Store

NOON = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
HELD = Verdict("True", "Shim", "asked shim, holds shim: container main: limit of 2Gi on GPU 0 held by shim")


def over(size: str, pid: int = 7) -> Verdict:
    said = (
        f"asked shim, holds watch: container main holds {size}, 1Gi more than its limit (process {pid} (x))"
    )
    return Verdict("False", "OverLimit", said)


class World:
    def __init__(self) -> None:
        self.api, self.store, self.time = FakeApi(fully_guarded=False), Store[Pod](), 1000.0
        self.told: list[str] = []
        ready = {"type": "Ready", "status": "True"}
        body = {"metadata": {"name": "web", "uid": "u-1"}, "status": {"conditions": [ready]}}
        self.api.put(PODS, body, "default")
        self.start()

    def start(self) -> None:
        self.store.put(self.api.read(PODS, "web", "default"))
        self.agent = LimitReporter(
            self.api,  # type: ignore[arg-type]
            self.store,
            PODS,
            changed=lambda _, found: self.told.append(found.reason),
            clock=lambda: self.time,
            wall=lambda: NOON + timedelta(seconds=self.time - 1000),
            random=Random(1),
        )

    def look(self, found: Verdict, after: float = 20.0) -> int:
        """How often was written so far."""
        self.time += after
        asyncio.run(self.agent.report({"u-1": found}))
        return self.api.written("pods")

    @property
    def condition(self) -> dict[str, Any]:
        found = self.api.raw(PODS, "web", "default")["status"]["conditions"]
        return next(each for each in found if each["type"] == names.GPU_LIMIT_HELD)


def test_one_write_a_change_and_none_while_nothing_changes():
    world = World()
    assert [world.look(HELD) for _ in range(3)] == [1, 1, 1]
    assert world.condition["status"] == "True"
    assert world.look(over("3Gi")) == 2
    at = world.condition["lastTransitionTime"]
    assert [world.look(over(size, pid)) for size, pid in (("3.5Gi", 7), ("900Mi", 12))] == [2, 2]
    assert world.look(HELD) == 3
    assert world.condition["lastTransitionTime"] > at
    assert world.told == ["Shim", "OverLimit", "Shim"]


def test_a_limit_that_changed_is_written_and_its_time_stays():
    world = World()
    world.look(HELD)
    at = world.condition["lastTransitionTime"]
    larger = Verdict(HELD.status, HELD.reason, HELD.message.replace("2Gi", "4Gi"))
    assert world.look(larger) == 2
    assert world.condition["lastTransitionTime"] == at
    assert world.told == ["Shim"], "the same words"


def test_what_gets_worse_is_written_at_once_and_what_gets_better_a_little_later():
    world = World()
    world.look(HELD)
    assert world.look(over("3Gi"), after=0.1) == 2
    assert world.look(HELD, after=0.1) == 2
    assert world.look(HELD, after=5.0) == 3


def test_another_agent_finds_it_as_it_is():
    world = World()
    world.look(over("3Gi"))
    world.start()
    assert world.look(over("4Gi")) == 1
    assert world.told == ["OverLimit"], "told by the one before"


def test_one_that_may_not_write_it_tells_all_the_same_and_tries_again():
    world = World()
    world.api.fates["patch"] = [refused(Forbidden("no", code=403))] * 2
    assert world.look(over("3Gi")) == 0
    assert world.look(over("3Gi"), after=0.5) == 0
    assert world.api.count("patch") == 1, "it waits before it tries again"
    assert world.look(over("3Gi")) == 0
    assert world.look(over("3Gi"), after=60.0) == 1
    assert world.told == ["OverLimit"]


def test_a_pod_that_is_gone_is_nothing_to_write():
    world = World()
    world.api.remove(PODS, "web", "default")
    assert world.look(HELD) == 0
    assert world.agent.trouble is None

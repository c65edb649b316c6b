"""The condition is written at changes only: two writes a cycle, none while nothing changes."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from kube.fakeapi import FakeApi, after, lost, refused

from cotenant.dialects import names
from cotenant.kube.agent.idle.reporting import IdleReporter
from cotenant.kube.agent.idle.rhythm import Rhythm
from cotenant.kube.agent.idle.verdict import SECOND, Activity
from cotenant.kube.api.errors import Forbidden, Invalid, TooManyRequests, Unreachable
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Store
from cotenant.kube.pods.idleness import Idle, Unknown, Working, idleness

NOON = datetime(2026, 11, 1, 12, 0, tzinfo=UTC).timestamp()
DAMAGED = "its slot is damaged"
READY = {"type": "Ready", "status": "True"}


class World:
    """A node with pods that use their GPU when the test says so, and an agent that may be killed."""

    def __init__(self, *names: str) -> None:
        self.api, self.store = FakeApi(fully_guarded=False), Store[Pod]()
        self.names = names or ("web",)
        self.time, self.offset = 1000.0, NOON - 1000.0
        self.last = dict.fromkeys(self.names, self.time)
        self.unseen: dict[str, str | None] = {}
        self.starting: dict[str, str | None] = {}
        for name in self.names:
            body = {
                "metadata": {"name": name, "uid": f"u-{name}"},
                "status": {"phase": "Running", "conditions": [READY]},
            }
            self.api.put(PODS, body, "default")
        self.watch()
        self.start()

    def start(self) -> None:
        """Another agent, without any memory."""
        self.statuses: list[str] = []
        self.agent = IdleReporter(
            self.api,  # type: ignore[arg-type]
            self.store,
            PODS,
            Rhythm(10.0),
            wrote=self.statuses.append,
            clock=lambda: self.time,
            wall=lambda: self.time + self.offset,
            random=Random(1),
        )

    def watch(self) -> None:
        """What the API server has reaches the agent."""
        for name in self.names:
            if self.api.has(PODS, name, "default"):
                self.store.put(self.api.read(PODS, name, "default"))

    def launch(self, name: str = "web") -> None:
        self.last[name] = self.time

    async def look(self) -> bool:
        seen = {
            f"u-{name}": (
                Activity(
                    "main",
                    0 if self.unseen.get(name) == DAMAGED else round(self.last[name] * SECOND),
                    used=True,
                    starting=self.starting.get(name),
                    unseen=self.unseen.get(name),
                ),
            )
            for name in self.names
        }
        return await self.agent.report(seen, round(self.time * SECOND))

    async def wait(self, seconds: float, step: float = 2.0) -> bool:
        end, true = self.time + seconds, True
        while self.time < end:
            self.time = min(end, self.time + step)
            true = await self.look()
        return true

    def condition(self, name: str = "web") -> dict[str, Any] | None:
        conditions = self.api.raw(PODS, name, "default")["status"]["conditions"]
        return next((each for each in conditions if each["type"] == names.GPU_IDLE), None)

    def idleness(self, name: str = "web"):
        return idleness(self.api.read(PODS, name, "default"))

    @property
    def writes(self) -> int:
        return self.api.written("pods")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.asyncio
async def test_a_pod_that_works_from_the_start_is_never_written(world: World) -> None:
    for _ in range(100):
        world.launch()
        assert await world.wait(5)
    assert world.writes == 0
    assert world.idleness() == Working(None)


@pytest.mark.asyncio
async def test_a_wall_clock_that_was_set_moves_the_time_that_is_shown(world: World) -> None:
    await world.wait(60)
    assert world.idleness() == Idle(NOON)
    world.offset += 3600
    await world.wait(60)
    assert world.idleness() == Idle(NOON + 3600)
    assert world.writes == 2


@pytest.mark.asyncio
async def test_what_others_undo_is_written_again(world: World) -> None:
    await world.wait(60)
    body = world.api.raw(PODS, "web", "default")
    body["status"]["conditions"] = [READY]
    world.api.put(PODS, body, "default")
    world.watch()
    await world.wait(60)
    assert world.idleness() == Idle(NOON)


@pytest.mark.asyncio
async def test_two_writes_a_cycle_and_none_while_nothing_changes(world: World) -> None:
    await world.wait(600)
    assert world.condition() == {
        "type": "cotenant.dev/GPUIdle",
        "status": "True",
        "reason": "NoActivity",
        "message": "container main has launched no kernel and allocated no GPU memory since 2026-11-01T12:00:00Z",
        "lastTransitionTime": "2026-11-01T12:00:00Z",
    }
    assert world.writes == 1
    world.launch()
    await world.wait(4)
    assert world.idleness() == Working(NOON + 600)
    for _ in range(20):
        world.launch()
        await world.wait(9)
    assert world.writes == 2
    await world.wait(3600)
    assert world.writes == 3
    assert world.idleness() == Idle(NOON + 775)
    assert world.api.raw(PODS, "web", "default")["status"]["conditions"][0] == READY


@pytest.mark.asyncio
async def test_idleness_is_reported_after_ten_seconds_and_work_at_the_next_look(world: World) -> None:
    await world.wait(8)
    assert world.condition() is None
    await world.wait(2)
    assert world.idleness() == Idle(NOON)
    world.launch()
    await world.look()
    assert world.idleness() == Working(NOON + 10)


@pytest.mark.asyncio
async def test_a_new_agent_writes_nothing_where_nothing_changed(world: World) -> None:
    await world.wait(60)
    for _ in range(5):
        world.start()
        await world.wait(30)
    assert world.writes == 1
    world.launch()
    await world.look()
    world.start()
    await world.wait(4)
    assert world.writes == 2


@pytest.mark.asyncio
async def test_an_agent_that_is_killed_before_its_write_leaves_it_to_the_next(world: World) -> None:
    world.api.fates["patch"] = [lost(before=True)]
    await world.wait(10)
    assert world.writes == 0
    world.start()
    await world.wait(2)
    assert world.idleness() == Idle(NOON)
    assert world.writes == 1


@pytest.mark.asyncio
async def test_an_agent_that_is_killed_after_its_write_has_done_it(world: World) -> None:
    world.api.fates["patch"] = [lost()]
    await world.wait(10)
    assert world.writes == 1
    world.watch()
    world.start()
    await world.wait(60)
    assert world.writes == 1


@pytest.mark.asyncio
async def test_a_write_whose_answer_is_lost_is_the_same_when_it_is_repeated(world: World) -> None:
    world.api.fates["patch"] = [lost()]
    await world.wait(30)
    assert world.api.count("patch") == 2
    assert world.writes == 1, "the API server stores nothing for a patch that changes nothing"
    world.launch()
    world.api.fates["patch"] = [lost(), lost()]
    await world.wait(9)
    assert world.api.count("patch") > 3
    assert world.writes == 2
    assert world.idleness() == Working(NOON + 30)


@pytest.mark.asyncio
async def test_what_an_agent_missed_while_it_was_away_is_one_write(world: World) -> None:
    await world.wait(60)
    world.time += 100
    world.launch()
    world.time += 100
    world.start()
    await world.look()
    assert world.idleness() == Idle(NOON + 160)
    assert world.writes == 2


@pytest.mark.asyncio
async def test_an_older_state_from_the_watch_causes_no_second_write(world: World) -> None:
    await world.wait(8)
    old = world.store.get("u-web")
    await world.wait(2)
    assert old is not None
    world.store.put(old)
    await world.wait(4)
    world.watch()
    await world.wait(60)
    assert (world.api.count("patch"), world.writes) == (1, 1)


@pytest.mark.asyncio
async def test_somebody_who_removes_or_changes_the_condition_is_corrected(world: World) -> None:
    await world.wait(20)
    raw = world.api.raw(PODS, "web", "default")
    world.api.put(PODS, {**raw, "status": {"phase": "Running", "conditions": [READY]}}, "default")
    world.watch()
    await world.wait(20)
    assert world.idleness() == Idle(NOON)
    forged = {"type": names.GPU_IDLE, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    raw = world.api.raw(PODS, "web", "default")
    world.api.put(PODS, {**raw, "status": {"phase": "Running", "conditions": [forged]}}, "default")
    world.watch()
    await world.wait(20)
    assert world.idleness() == Idle(NOON)


@pytest.mark.asyncio
async def test_a_launch_every_11_seconds_is_bounded(world: World) -> None:
    for _ in range(320):
        await world.wait(11, step=1.0)
        world.launch()
    assert world.writes <= 2 * 7, "in an hour"
    await world.wait(40)
    assert isinstance(world.idleness(), Idle)


@pytest.mark.parametrize("gap", [10.5, 21.0, 31.0, 61.0])
@pytest.mark.asyncio
async def test_no_rhythm_causes_more_than_four_writes_a_minute(world: World, gap: float) -> None:
    for _ in range(60):
        await world.wait(gap, step=1.0)
        world.launch()
    assert world.writes <= 4 * gap + 2


@pytest.mark.asyncio
async def test_a_container_that_is_ready_and_unready_again_is_not_loading(world: World) -> None:
    world.starting["web"] = "is loading"
    await world.wait(60)
    assert world.writes == 0
    for _ in range(100):
        world.starting["web"] = None
        await world.wait(2)
        world.starting["web"] = "is loading"
        await world.wait(2)
    assert world.writes == 1
    world.launch()  # it was restarted
    await world.wait(2)
    assert isinstance(world.idleness(), Working)


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_a_container_does_its_writes_are_bounded(world: World, seed: int) -> None:
    """It damages its slot and restores it, is ready and unready, works and rests, as fast as it can."""
    play = Random(seed)
    likely = play.choice([0.02, 0.1, 0.3])
    for _ in range(1800):
        world.unseen["web"] = DAMAGED if play.random() < likely * 2 else None
        world.starting["web"] = "is loading" if play.random() < likely else None
        if play.random() < likely:
            world.launch()
        await world.wait(2)
    assert world.writes <= 6 * 60, "in an hour"


@pytest.mark.asyncio
async def test_a_slot_that_is_damaged_and_restored_at_each_look_is_bounded(world: World) -> None:
    for _ in range(900):
        world.unseen["web"] = DAMAGED
        await world.wait(2)
        world.unseen["web"] = None
        world.launch()
        await world.wait(2)
    assert world.writes <= 4 * 60, "in an hour"


@pytest.mark.asyncio
async def test_a_jump_of_the_wall_clock_changes_no_status(world: World) -> None:
    world.launch()
    await world.wait(4)
    world.offset += 86400
    world.launch()
    await world.wait(8)
    assert world.writes == 0, "a day later by the wall clock, and no idleness"
    await world.wait(30)
    at = world.idleness()
    assert isinstance(at, Idle)
    world.offset -= 86400
    await world.wait(30)
    assert world.idleness() == Idle(at.since - 86400), "the time is given by the clock as it is now"
    assert world.writes == 2
    world.offset += 1.0
    await world.wait(30)
    assert world.writes == 2, "a clock that is set a little is no change"


@pytest.mark.asyncio
async def test_what_cannot_be_measured_is_unknown_with_its_reason_and_written_once(world: World) -> None:
    world.unseen["web"] = "its program is static"
    await world.wait(60)
    assert world.idleness() == Unknown("container main: its program is static")
    assert world.writes == 1
    world.unseen["web"] = None
    await world.wait(30)
    assert world.idleness() == Idle(NOON)
    assert world.writes == 2


@pytest.mark.asyncio
async def test_who_works_is_written_before_who_is_idle() -> None:
    world = World(*(f"p{at:02}" for at in range(30)))
    world.launch("p29")
    await world.wait(10)
    await world.wait(10)
    world.api.calls.clear()
    for name in world.names[:28]:
        world.last[name] = world.time  # all go back to work at once, one becomes idle
    await world.wait(2)
    assert world.api.count("patch") == 20, "no more after one look"
    await world.wait(2)
    assert world.api.count("patch") == 28
    assert all(isinstance(world.idleness(name), Working) for name in world.names[:28])


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("a policy", code=403),
        Invalid("too large", code=422),
        TooManyRequests("later", code=429, retry_after=3.0),
        Unreachable("nobody answers"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.asyncio
async def test_an_api_server_that_refuses_is_asked_less_and_less(world: World, error: Exception) -> None:
    world.api.fails["patch"] = error
    await world.wait(600)
    assert 10 < world.api.count("patch") < 60
    assert world.agent.trouble is not None
    del world.api.fails["patch"]
    await world.wait(40)
    assert world.idleness() == Idle(NOON)
    assert world.agent.trouble is None


@pytest.mark.asyncio
async def test_a_pod_that_cannot_be_written_does_not_delay_the_others() -> None:
    world = World("big", "small")
    world.api.fates["patch"] = [refused(Invalid("too large", code=422))]
    await world.wait(10)
    assert world.condition("big") is None
    assert world.idleness("small") == Idle(NOON)
    assert await world.wait(2), "nobody believes that it is idle: others may be believed"


@pytest.mark.asyncio
async def test_while_a_pod_is_wrongly_shown_as_idle_nothing_is_vouched_for(world: World) -> None:
    assert await world.wait(20)
    world.launch()
    world.api.fails["patch"] = Forbidden("a policy", code=403)
    assert not await world.wait(8)
    del world.api.fails["patch"]
    assert await world.wait(30)


@pytest.mark.asyncio
async def test_a_pod_wrongly_shown_as_idle_is_written_as_soon_as_the_api_server_is_back(world: World) -> None:
    await world.wait(20)
    world.launch()
    world.api.fails["patch"] = Unreachable("nobody answers")
    for _ in range(15):
        world.launch()
        await world.wait(4)
    assert isinstance(world.idleness(), Idle)
    del world.api.fails["patch"]
    await world.wait(2)
    assert isinstance(world.idleness(), Working)


@pytest.mark.asyncio
async def test_a_pod_that_goes_away_meanwhile_is_no_trouble(world: World) -> None:
    world.api.fates["patch"] = [after(lambda api: api.remove(PODS, "web", "default"))]
    assert await world.wait(12)
    assert world.agent.trouble is None


@pytest.mark.asyncio
async def test_another_pod_of_the_same_name_is_not_written(world: World) -> None:
    world.api.put(
        PODS, {"metadata": {"name": "web", "uid": "u-other"}, "status": {"conditions": [READY]}}, "default"
    )
    await world.wait(60)
    assert world.condition() is None
    assert world.writes == 0


@pytest.mark.asyncio
async def test_each_write_is_counted_by_its_status(world: World) -> None:
    await world.wait(20)
    world.launch()
    await world.wait(2)
    assert world.statuses == ["True", "False"]

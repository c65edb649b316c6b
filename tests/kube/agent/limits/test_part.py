"""The agent's part that holds limits: what it chooses, what it says of itself, and that no driver can stop it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kube.agent.nodes import GIB, make

from cotenant.core.grant import Share
from cotenant.hardware.enforcers.driver import Driver
from cotenant.hardware.enforcers.enforcer import Confirmation
from cotenant.hardware.nvml import Nvml
from cotenant.hardware.standin.driver import StandIn
from cotenant.kube.agent.agent import Agent
from cotenant.kube.agent.cards.driver import cards_of
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.limits.part import Limits
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.agent.slots.confirming import Confirming
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.client import Client
from cotenant.kube.settings import Settings

pytestmark = pytest.mark.asyncio
Opened = Callable[..., AbstractAsyncContextManager[tuple[Limits, Agent]]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def open_agent(simulate: str, **more: object) -> AsyncIterator[tuple[Limits, Agent]]:
        own = AgentSettings("n1", slots=str(tmp_path), simulate=simulate, survey_timeout=0.5, **more)  # type: ignore[arg-type]
        cards, instances = cards_of(own), list[Nvml]()

        def nvml() -> Nvml:
            instances.append(cards.nvml())
            return instances[-1]

        async with Client(Access("http://127.0.0.1:9")) as client:
            agent = Agent(Settings(agent=own), client, replace(cards, nvml=nvml), {})
            [part] = [each for each in agent.parts if isinstance(each, Limits)]
            yield part, agent
        for each in instances:
            each.close()

    return open_agent


async def test_it_is_ready_once_the_enforcer_is_chosen(opened: Opened):
    async with opened("1xT4@615.20") as (part, agent):
        assert "has not been chosen yet" in (part.ready() or "")
        assert agent.context.use(Enforcement).undecided
        await part.choose()
        assert part.ready() is None
        assert isinstance(agent.context.use(NodeSlots).enforcer, Driver)
        assert agent.context.use(Enforcement).offered == "driver"
        assert not agent.context.use(Enforcement).undecided


async def test_one_that_is_set_and_cannot_be_used_keeps_it_unready(opened: Opened):
    async with opened("1xT4", enforcer="driver") as (part, agent):
        await part.choose()
        said = part.ready() or ""
        assert "agent.enforcer: driver is asked for and cannot be used: the driver (580.95.05)" in said
        assert "Containers are held by shim meanwhile" in said
        assert agent.context.use(Enforcement).offered == "shim"


async def test_a_driver_that_raises_whatever_leaves_containers_with_what_they_have(opened: Opened):
    async with opened("1xT4") as (part, agent):
        part._enforcers.choose = lambda: 1 // 0  # type: ignore[method-assign,assignment,return-value]
        await part.choose()
        assert agent.context.use(NodeSlots).enforcer.name == "shim"
        assert part.ready() is None


async def test_a_driver_that_hangs_is_asked_nothing_more_until_it_answers(opened: Opened):
    async with opened("1xT4") as (part, _):
        asked, answer = [], threading.Event()

        def hang() -> str:
            asked.append(1)
            answer.wait(20)
            return "late"

        assert await part._ask(hang) is None
        assert await part._ask(hang) is None
        assert len(asked) == 1
        answer.set()
        assert part._hanging is not None
        assert await part._hanging == "late"
        assert await part._ask(lambda: "again") == "again"


async def test_a_container_that_starts_is_settled_when_the_driver_holds_it(opened: Opened, tmp_path: Path):
    async with opened("1xT4@615.20") as (part, agent):
        await part.choose()
        slots, [card] = agent.context.use(NodeSlots), StandIn(tmp_path / "standin" / "state").cards()
        make(slots, "slot-0000", Share(card.uuid, GIB))
        make(slots, "slot-0001", Share(card.uuid, GIB), mode="observe", uid="u-2")
        assert part._settled(["slot-0000", "slot-0001", "gone"]) == ["slot-0001", "gone"], "no cgroup yet"
        slots.enforcer.confirm = lambda *_: Confirmation("holds", "", by="driver")  # type: ignore[method-assign]
        assert part._settled(["slot-0000"]) == ["slot-0000"]
        assert agent.context.use(Enforcement).holds("slot-0000") == "driver"
        assert agent.context.use(Confirming).findings.keys() == {"slot-0000"}

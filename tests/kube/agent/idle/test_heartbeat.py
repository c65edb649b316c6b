"""The Lease by which others know that an agent reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from kube.fakeapi import FakeApi, lost, refused

from cotenant.kube.agent.idle.heartbeat import Heartbeat
from cotenant.kube.api.errors import AlreadyExists, Forbidden
from cotenant.kube.api.objects import Lease, Meta, Node
from cotenant.kube.api.resources import LEASES
from cotenant.kube.api.store import Store
from cotenant.kube.nodes.agent_reports import AgentReports, lease_of

NOON = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
NODE = Node(Meta(name="n1", uid="u-n1"))


class World:
    def __init__(self) -> None:
        self.api, self.now = FakeApi(fully_guarded=False), 0.0
        self.node: Node | None = NODE
        self.agent = Heartbeat(
            self.api,  # type: ignore[arg-type]
            "cotenant-system",
            lambda: self.node,
            clock=lambda: self.now,
            wall=lambda: NOON + timedelta(seconds=self.now),
        )

    async def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 1
            await self.agent.beat()

    @property
    def lease(self) -> Lease:
        return self.api.read(LEASES, "cotenant-agent-n1", "cotenant-system")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.asyncio
async def test_it_is_made_once_belongs_to_the_node_and_is_renewed_every_ten_seconds(world: World) -> None:
    await world.wait(61)
    assert world.api.count("create") == 1
    assert world.api.written("leases") == 7
    assert world.lease.spec.renew_time == NOON + timedelta(seconds=61)
    (owner,) = world.lease.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", "n1", "u-n1")


@pytest.mark.asyncio
async def test_without_the_right_to_it_the_agent_goes_on(world: World) -> None:
    world.api.fails["patch"] = Forbidden("leases", code=403)
    await world.wait(60)
    assert world.api.count("patch") == 6
    assert isinstance(world.agent.trouble, Forbidden)
    del world.api.fails["patch"]
    await world.wait(10)
    assert world.agent.trouble is None


@pytest.mark.asyncio
async def test_one_that_was_created_meanwhile_is_renewed(world: World) -> None:
    world.api.fates["create"] = [lost(), refused(AlreadyExists("there", code=409))]
    await world.wait(12)
    assert world.lease.spec.renew_time is not None
    assert world.agent.trouble is None


@pytest.mark.asyncio
async def test_a_node_that_is_not_known_has_no_lease(world: World) -> None:
    world.node = None
    await world.wait(60)
    assert world.api.calls == []


class Leader:
    def __init__(self) -> None:
        self.store, self.now, self.skew = Store[Lease](), 100.0, 0.0
        self.reports = AgentReports(
            self.store, lambda: self.now, lambda: NOON.timestamp() + self.now + self.skew
        )
        self.version = 0

    def renewed(self, at: float | None = None, name: str = "cotenant-agent-n1") -> None:
        self.version += 1
        when = NOON + timedelta(seconds=self.now if at is None else at)
        body = {"metadata": {"name": name, "uid": name, "resourceVersion": str(self.version)}}
        text = when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.store.put(LEASES.decode(_json({**body, "spec": {"renewTime": text}})))


def _json(body: dict[str, object]) -> bytes:
    return msgspec.json.encode(body)


def test_a_node_without_a_lease_has_no_agent() -> None:
    leader = Leader()
    assert leader.reports.gone("n1") == "no agent of Cotenant reports from node n1"
    leader.renewed(name="cotenant-server")
    assert leader.reports.gone("cotenant-server") is not None
    assert leader.reports.gone("n1") is not None


def test_an_agent_that_renews_is_there_and_one_that_stops_is_gone() -> None:
    leader = Leader()
    for _ in range(10):
        leader.renewed()
        leader.now += 10
        assert leader.reports.gone("n1") is None
    leader.now += 25
    assert leader.reports.gone("n1") == "the agent of node n1 has not reported for 35 s"
    leader.renewed()
    assert leader.reports.gone("n1") is None


def test_a_new_leader_does_not_believe_a_lease_that_is_old() -> None:
    leader = Leader()
    leader.renewed(at=leader.now - 300)
    assert leader.reports.gone("n1") is not None
    fresh = Leader()
    fresh.renewed(at=fresh.now - 5)
    assert fresh.reports.gone("n1") is None


def test_clocks_that_differ_or_jump_do_not_matter_once_a_renewal_is_seen() -> None:
    leader = Leader()
    leader.skew = 7200.0
    leader.renewed()
    assert leader.reports.gone("n1") is not None, "by the clocks it is two hours old"
    leader.now += 10
    leader.renewed()
    assert leader.reports.gone("n1") is None
    leader.skew = -7200.0
    assert leader.reports.gone("n1") is None
    leader.now += 31
    assert leader.reports.gone("n1") is not None


def test_a_change_that_renews_nothing_does_not_count() -> None:
    leader = Leader()
    leader.renewed(at=100)
    leader.now += 20
    leader.renewed(at=100)
    leader.now += 20
    assert leader.reports.gone("n1") is not None


def test_a_lease_that_is_deleted_is_gone() -> None:
    leader = Leader()
    leader.renewed()
    leader.store.remove(next(iter(leader.store)))
    assert leader.reports.gone("n1") is not None


def test_the_name_of_a_lease_is_never_too_long() -> None:
    assert len(lease_of("n" * 253)) == 253

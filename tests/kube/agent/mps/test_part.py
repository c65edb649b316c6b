"""The part of the agent with NVIDIA's own control daemon, on simulated GPUs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import mpsdaemon
import pytest
from kube.agent.mps.agent_process import Process, shown
from kube.agent.nodes import CARDS, GIB, A, make, pod

from cotenant.core.grant import Share
from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.place import place_in
from cotenant.hardware.nvml import CardReading
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.driver import NodeCards
from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.context import NodeContext
from cotenant.kube.agent.mps.part import Mps
from cotenant.kube.agent.mps.reporting import ENDED, report
from cotenant.kube.agent.mps.settings import MpsSettings
from cotenant.kube.agent.mps.watching import Incident
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.api.objects import ContainerStatus, PodStatus
from cotenant.kube.api.store import Store
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import Registry, text_of


@pytest.fixture
def start(mps):
    started = []

    def another(**settings) -> Process:
        started.append(Process(mps, **settings))
        return started[-1]

    yield another
    for each in started:
        each.close()


def test_the_agent_starts_the_daemon_restores_it_and_leaves_it_to_the_next_agent(mps, start):
    first = start(active_thread_percentage="30", pinned_memory="1536M")
    place = place_in(mps.folder / "s" / "mps", "node")
    first.until_ready()
    assert shown(mps, place) == (30, "1G", "1G", None)
    assert 'cotenant_mps_up{daemon="node"} 1.0' in first.fetch("/metrics")

    killed = mps.kill(place)
    began = time.monotonic()
    mpsdaemon.until(lambda: daemon.holder(place) not in (None, killed), 15)
    mpsdaemon.until(lambda: shown(mps, place) == (30, "1G", "1G", None), 15)
    print(f"restored after {time.monotonic() - began:.1f} s")
    mpsdaemon.until(lambda: 'cotenant_mps_restarts_total{daemon="node"} 1.0' in first.fetch("/metrics"), 5)

    first.process.kill()
    first.process.wait()
    restored = daemon.holder(place)
    assert restored is not None, "it survives its agent"
    second = start(active_thread_percentage="50", pinned_memory="3G")
    second.until_ready()
    assert daemon.holder(place) == restored, "it is taken over, and no second one is started"
    assert shown(mps, place) == (50, "3G", "3G", None)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("active_thread_percentage", value) for value in ("0", "101", "-5", "abc", "33.3")),
        *(("pinned_memory", value) for value in ("1.5G", "abc", "0", "-5", "101")),
    ],
)
def test_nonsense_in_the_settings_is_refused_before_anything_is_started(setting, value):
    from cotenant.core.errors import BadInput
    from cotenant.kube.agent.parts import PARTS
    from cotenant.kube.parts.settings import settings_type
    from cotenant.settings.loading import load_settings

    environ = {f"COTENANT__MPS__{setting.upper()}": value}
    with pytest.raises(BadInput, match=rf"mps.{setting}|MPS__{setting.upper()}"):
        load_settings(settings_type(PARTS), None, environ, print)


def test_a_process_of_its_own_supervises_and_the_agent_only_watches(mps, start):
    place = place_in(mps.folder / "s" / "mps", "node")
    agent = start(supervise="false")
    agent.until_ready("no MPS control daemon runs at")
    start(words=("--supervise-mps",), active_thread_percentage="50")
    agent.until_ready()
    assert mps.control(place).percentage() == 50


class World:
    """The part in this process, with GPUs and pods that a test sets."""

    def __init__(self, mps, slots, **settings):
        own = MpsSettings(program=str(mps.program), shared_memory="/dev/shm", **settings)
        self.pods = Store()
        cards = object.__new__(Cards)
        cards._listeners = []
        cards.survey = SimpleNamespace(
            sight=SimpleNamespace(cards=tuple(CardReading(gpu, 0) for gpu in CARDS.values()))
        )
        self.registry = Registry()
        context = NodeContext(
            Settings(agent=AgentSettings(slots=str(mps.folder)), mps=own),
            None,
            {next(iter(Mps.needs(Settings()))).resource: SimpleNamespace(store=self.pods)},
            None,
            self.registry,
            {"PATH": mps.server_path()},
            node="n1",
            cards=NodeCards(lambda: None, 1),
        )
        context.share(cards)
        self.part = Mps(context)
        self.said = []
        self.part._recorder = SimpleNamespace(
            record=lambda pod, reason, message: self.said.append((pod.metadata.name, reason, message)),
            run=asyncio.Event().wait,
            forget=lambda uid: None,
        )
        self.folder = mps.folder / "mps"


def environment_of(pid):
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


async def until(fact, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110 -- it is looked at, as others do
            await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_each_gpu_has_a_daemon_of_its_own_and_containers_are_pointed_at_theirs(mps, slots):
    world = World(mps, slots, daemons="card")
    assert world.part.ready() == "no MPS control daemon has been started yet"
    running = asyncio.create_task(world.part.run())
    try:
        await until(lambda: world.part.ready() is None)
        assert world.part.enforces()
        places = [place_in(world.folder, uuid) for uuid in CARDS]
        pids = [daemon.holder(place) for place in places]
        assert None not in pids
        assert len(set(pids)) == 2
        for uuid, pid in zip(CARDS, pids, strict=True):
            assert f"CUDA_VISIBLE_DEVICES={uuid}" in environment_of(pid)

        shared, plain = make(slots, "slot-1", Share(A, GIB, 30)), make(slots, "slot-2", Share(A, GIB))
        for slot in (shared, plain):
            await world.part.prepare(slot)
        assert str((shared.folder / "mps").readlink()) == f"/run/cotenant/mps/{A}"
        assert not (plain.folder / "mps").is_symlink()
        host = [str(mount.host) for mount in world.part.attachment().mounts]
        assert host == [str(world.folder / "pipes"), "/dev/shm"]
        assert world.said == []
    finally:
        running.cancel()


@pytest.mark.asyncio
async def test_a_mode_that_only_observes_is_not_enforced_by_mps_and_that_is_told(mps, slots):
    world = World(mps, slots, daemons="node")
    daemon.start(mps.program, mps_place(world))
    world.pods.put(pod("web", ("main", Share(A, GIB, 30))))
    slot = make(slots, "slot-1", Share(A, GIB, 30), mode="observe")
    await world.part.prepare(slot)
    assert not (slot.folder / "mps").is_symlink()
    (told,) = world.said
    assert told[:2] == ("web", "GPUComputeNotEnforced")
    assert "limits are in the mode observe" in told[2]


def mps_place(world):
    place = place_in(world.folder, "node")
    place.make(0o755)
    return place


@pytest.mark.asyncio
async def test_a_daemon_that_does_not_come_keeps_no_container_from_starting(mps, slots, monkeypatch):
    monkeypatch.setattr("cotenant.kube.agent.mps.part._PATIENCE", 0.3)
    world = World(mps, slots, daemons="node")
    world.pods.put(pod("web", ("main", Share(A, GIB, 30))))
    slot = make(slots, "slot-1", Share(A, GIB, 30))
    await world.part.prepare(slot)
    (told,) = world.said
    assert "container main: its share of compute is not enforced: no MPS control daemon runs at" in told[2]


@pytest.mark.asyncio
async def test_off_does_nothing_at_all(mps, slots):
    world = World(mps, slots)
    assert world.part.ready() is None
    assert not world.part.enforces()
    assert world.part.attachment() == ((), {})
    slot = make(slots, "slot-1", Share(A, GIB, 30))
    await world.part.prepare(slot)
    assert not (slot.folder / "mps").is_symlink()
    assert not world.folder.exists()
    assert b"cotenant_mps_up{" not in text_of(world.registry)


@pytest.mark.asyncio
async def test_the_end_of_a_server_that_had_clients_is_told_to_their_pods(mps, slots, monkeypatch):
    """The server is a program of ours that NVIDIA's daemon has started; that it has a client, the test says."""
    monkeypatch.setattr("cotenant.kube.agent.mps.part._LOOK", 0.1)
    world = World(mps, slots, daemons="node")
    running = asyncio.create_task(world.part.run())
    try:
        await until(lambda: world.part.ready() is None)
        place = place_in(world.folder, "node")
        watch, owner = world.part._watches["node"], Owner("u-1", "cri-0123456789abcdef.scope")
        servers = mps.control(place).servers
        watch.control = lambda: SimpleNamespace(servers=servers, clients=lambda _: (1,))
        watch.owners = lambda pids: dict.fromkeys(pids, owner)
        server = await asyncio.to_thread(mps.start_server, place)
        await until(lambda: watch.servers == {server: {owner}})
        running_pod = pod("web", ("main", Share(A, GIB, 30)))
        status = PodStatus(
            container_statuses=(ContainerStatus("main", container_id="containerd://0123456789abcdef"),)
        )
        world.pods.put(running_pod.__class__(running_pod.metadata, running_pod.spec, status))
        os.kill(server, signal.SIGKILL)
        await until(lambda: world.said)
        (told,) = world.said
        assert told[:2] == ("web", ENDED)
        assert told[2].startswith(f"container main: the MPS server {server} has ended while it was in use")
    finally:
        running.cancel()


def test_every_pod_that_a_fault_has_hit_is_told_once():
    said = []
    recorder = SimpleNamespace(record=lambda pod, *words: said.append((pod.metadata.name, *words)))
    pods = [pod("a", uid="u-a"), pod("b", uid="u-b"), pod("c", uid="u-c")]
    hit = frozenset({Owner("u-a", "x"), Owner("u-a", "y"), Owner("u-b", "z"), Owner("u-gone", "z")})
    report(Incident("fault", hit, "a process has faulted"), "node", pods, recorder)
    assert sorted(each[:2] for each in said) == [("a", ENDED), ("b", ENDED)]
    assert all("One fault ends all clients of a server" in each[2] for each in said)

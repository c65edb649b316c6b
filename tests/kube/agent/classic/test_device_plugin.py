"""The device plugin as a kubelet meets it: real gRPC over unix sockets, with a kubelet's sockets played by the test."""

import asyncio
import contextlib

import grpc
import pytest
import pytest_asyncio
from kube.agent.nodes import CARDS, GIB, NODE, A, api_with, make, pod

from cotenant.core.grant import Share
from cotenant.kube.agent.classic.device_plugin import DevicePlugin
from cotenant.kube.agent.classic.pod_resources import PodResources
from cotenant.kube.agent.slots.mounts import Simulation
from cotenant.kube.agent.slots.starting import Starting

pytestmark = pytest.mark.asyncio
GRANTED = pod("web", ("main", Share(A, 4 * GIB)))


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - of things that tell nobody
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def run(kubelet, slots):
    """Starts a plugin beside the kubelet."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(api=None, count=3, simulation=None, starts=None, **more):
            resources = PodResources(kubelet.pod_resources)
            stack.push_async_callback(resources.close)
            starts = starts or Starting(
                NODE, api or api_with(GRANTED), resources, slots, lambda: CARDS, lambda _: 1
            )
            plugin = DevicePlugin(kubelet.folder, slots, starts, simulation, **more)
            await plugin.offer(count)
            running = asyncio.create_task(plugin.run())
            stack.push_async_callback(_end, running)
            await until(lambda: kubelet.registered)
            return plugin

        yield start


async def _end(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_it_registers_its_resource_and_asks_to_be_called_before_each_start(run, kubelet):
    await run()
    [request] = kubelet.registered
    assert (request.version, request.resource_name) == ("v1beta1", "cotenant.dev/gpu-slot")
    assert request.endpoint.startswith("cotenant-")
    assert request.options.pre_start_required
    async with kubelet.plugin() as asked:
        assert (await asked.options()).pre_start_required


async def test_slots_may_become_more_and_never_fewer(run, kubelet):
    plugin = await run(count=2)
    async with kubelet.plugin() as asked:
        told = asked.watch()
        assert [each.ID for each in (await told.read()).devices] == ["slot-0000", "slot-0001"]
        await plugin.offer(1)
        await plugin.offer(3)
        devices = (await told.read()).devices
        assert [(each.ID, each.health) for each in devices][-1] == ("slot-0002", "Healthy")
        assert len(devices) == plugin.count == 3


async def test_slots_on_disk_are_offered_whatever_the_cards_admit(run, slots):
    make(slots, "slot-0007", Share(A, GIB))
    assert (await run(count=2)).count == 8


async def test_it_is_registered_while_the_kubelet_listens(run, kubelet):
    plugin = await run()
    assert plugin.registered_since is None, "accepted, but nobody listens yet"
    async with kubelet.plugin() as asked:
        await asked.watch().read()
        assert plugin.registered_since is not None
    await until(lambda: plugin.registered_since is None)
    await until(lambda: len(kubelet.registered) == 2)


async def test_a_kubelet_that_restarts_finds_it_again(run, kubelet):
    await run()
    for times in (2, 3):
        await kubelet.stop()
        await asyncio.sleep(0.2)
        await kubelet.start()  # which removes the plugin's socket
        await until(lambda times=times: len(kubelet.registered) >= times)
        async with kubelet.plugin() as asked:
            assert len((await asked.watch().read()).devices) == 3


async def _remove_ours(kubelet):
    (kubelet.plugins / kubelet.registered[-1].endpoint).unlink()


async def _touch_the_kubelet_s(kubelet):
    (kubelet.plugins / "kubelet.sock").chmod(0o777)


@pytest.mark.parametrize("event", [_remove_ours, _touch_the_kubelet_s])
async def test_it_registers_again_under_another_name_and_after_its_stream_has_ended(run, kubelet, event):
    """A kubelet refuses a path that it still has a stream to, and goes on refusing it until it restarts."""
    kubelet.watches = True
    plugin = await run()
    for times in (1, 2, 3):
        await until(lambda: plugin.registered_since is not None and kubelet.devices == 3)
        assert len(kubelet.registered) == times
        kubelet.devices = 0
        await event(kubelet)
        await until(lambda times=times: len(kubelet.registered) > times)
    assert len({each.endpoint for each in kubelet.registered}) == 4
    assert not any(kubelet.open_at_register), "no stream was open when it registered"
    await until(lambda: len(list(kubelet.plugins.glob("cotenant*"))) == 1)


async def test_it_takes_the_sockets_of_a_killed_agent_away(run, kubelet):
    for name in ("cotenant.sock", "cotenant-00000000.sock", "nvidia.sock"):
        (kubelet.plugins / name).touch()
    await run()
    left = {each.name for each in kubelet.plugins.iterdir()}
    assert left == {"kubelet.sock", "nvidia.sock", kubelet.registered[-1].endpoint}


async def test_it_waits_for_a_kubelet_that_is_not_there_yet(kubelet, slots):
    await kubelet.stop()
    (kubelet.plugins / "kubelet.sock").unlink(missing_ok=True)
    kubelet.plugins.rmdir()
    plugin = DevicePlugin(kubelet.folder, slots, None)
    running = asyncio.create_task(plugin.run())
    await asyncio.sleep(0.3)
    kubelet.plugins.mkdir()
    await kubelet.start()
    await until(lambda: kubelet.registered)
    await _end(running)


async def test_a_container_is_given_its_slot_and_the_shim(run, kubelet, slots):
    await run()
    async with kubelet.plugin() as asked:
        given = await asked.allocate("slot-0001")
    folder = slots.root / "slots" / "slot-0001" / "folder"
    assert [(each.container_path, each.host_path, each.read_only) for each in given.mounts] == [
        ("/run/cotenant/slot", str(folder), True),
        ("/run/cotenant/slot/usage", str(folder / "usage"), False),
        ("/run/cotenant/lib/libcotenant.so", str(slots.root / "lib" / "libcotenant.so"), True),
        ("/etc/ld.so.preload", str(slots.root / "ld.so.preload"), True),
    ]
    assert dict(given.envs) == {}
    assert folder.is_dir()


async def test_simulated_cards_come_with_their_driver(run, kubelet, tmp_path):
    await run(simulation=Simulation(tmp_path / "state", tmp_path / "lib"))
    async with kubelet.plugin() as asked:
        given = await asked.allocate("slot-0001")
    assert [(each.container_path, each.host_path, each.read_only) for each in given.mounts][4:] == [
        ("/run/cotenant/standin/lib", str(tmp_path / "lib"), True),
        ("/run/cotenant/standin/state", str(tmp_path / "state"), False),
    ]
    assert dict(given.envs) == {
        "COTENANT_STANDIN": "/run/cotenant/standin/state",
        "COTENANT_STANDIN_RUNTIME": "1",
        "LD_LIBRARY_PATH": "/run/cotenant/standin/lib",
    }


@pytest.mark.parametrize("devices", [(), ("slot-0000", "slot-0001")])
async def test_a_container_has_one_slot(run, kubelet, devices):
    await run()
    async with kubelet.plugin() as asked:
        for call in (asked.allocate, asked.pre_start):
            with pytest.raises(grpc.aio.AioRpcError, match=f"one slot, and {len(devices)} were asked for"):
                await call(*devices)


async def test_a_device_that_is_no_slot_is_refused(run, kubelet):
    await run()
    async with kubelet.plugin() as asked:
        with pytest.raises(grpc.aio.AioRpcError, match="no slot of this node"):
            await asked.allocate("../../etc")


async def test_a_container_that_may_start_finds_its_limits(run, kubelet, slots):
    kubelet.holders = [("default", "web", "main", ["slot-0001"])]
    await run()
    async with kubelet.plugin() as asked:
        await asked.allocate("slot-0001")
        await asked.pre_start("slot-0001")
    assert [(slot.key, slot.limits.owner) for slot in slots.read()] == [("slot-0001", "u-1")]


async def test_a_refusal_reaches_the_kubelet_in_words(run, kubelet):
    kubelet.holders = [("default", "web", "main", ["slot-0001"])]
    await run(api_with(pod("web")))
    async with kubelet.plugin() as asked:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await asked.pre_start("slot-0001")
    assert refused.value.details().startswith(
        "cotenant: pod default/web has no grant (annotation cotenant.dev/grant)"
    )


@pytest.mark.parametrize("bug", [ValueError("a bug"), OSError(28, "No space left")])
async def test_a_bug_starts_nothing_and_hurts_nobody_else(run, kubelet, bug):
    class Broken:
        async def start(self, device):
            raise bug

    await run(starts=Broken())
    async with kubelet.plugin() as asked:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match="the node's agent failed"):
                await asked.pre_start("slot-0000")
        await asked.allocate("slot-0000")


async def test_a_start_that_takes_too_long_ends_in_words(run, kubelet):
    class Stuck:
        async def start(self, device):
            await asyncio.sleep(60)

    await run(starts=Stuck(), start_timeout=0.1)
    async with kubelet.plugin() as asked:
        with pytest.raises(grpc.aio.AioRpcError, match="slot-0000: its slot was not ready"):
            await asked.pre_start("slot-0000")


async def test_forty_containers_start_at_once(run, kubelet, slots):
    pods = [pod(f"p{n}", ("main", Share(A, 2**20)), uid=f"u-{n}") for n in range(40)]
    kubelet.holders = [("default", f"p{n}", "main", [f"slot-{n:04d}"]) for n in range(40)]
    await run(api_with(*pods), count=40)
    async with kubelet.plugin() as asked:
        await asyncio.gather(*(asked.pre_start(f"slot-{n:04d}") for n in range(40)))
    assert {slot.key: slot.limits.owner for slot in slots.read()} == {
        f"slot-{n:04d}": f"u-{n}" for n in range(40)
    }

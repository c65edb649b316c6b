"""The part in real servers on a real API server: any server reports what is in the status of a GpuScaler."""

import asyncio
import contextlib
import ssl

import grpc
import pytest
import pytest_asyncio
from kube.apiserver import unused_ports
from kube.scaler.keda.client import Trigger, channel
from kube.scaler.specs import spec
from kube.scaler.test_definition import scalers

from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.resources import CONFIG_MAPS, LEASES, NAMESPACES
from cotenant.kube.certificates.distribution import CA_CONFIG_MAP, CA_KEY
from cotenant.kube.certificates.keeper import CertificateKeeper
from cotenant.kube.parts.running import PartFailed
from cotenant.kube.scaler.keda.part import Keda
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.server.certificates import Certificates
from cotenant.kube.server.server import Server
from cotenant.kube.settings import Settings
from cotenant.settings.loading import read_settings

pytestmark = pytest.mark.asyncio
__all__ = ["scalers"]
Code = grpc.StatusCode


class Running:
    """One server that answers KEDA."""

    def __init__(self, server, port, task):
        self.server, self.port, self.task = server, port, task
        self.namespace = server._settings.namespace

    async def trusted(self, client, namespace):
        """What KEDA reads in its own namespace."""
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(NotFound):
                    found = await client.get(CONFIG_MAPS, CA_CONFIG_MAP, namespace)
                    if CA_KEY in found.data:
                        return found.data[CA_KEY].encode()
                await asyncio.sleep(0.05)

    def line(self, trusted):
        return channel(self.port, trusted, f"cotenant-keda.{self.namespace}.svc")

    async def stop(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, PartFailed):
            await self.task


@pytest_asyncio.fixture
async def keda_namespace(client, namespace):
    name = f"{namespace}-keda"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name


@pytest_asyncio.fixture
async def start(client, namespace, keda_namespace, scalers):
    await client.create(LEASES, {"metadata": {"name": "cotenant-server"}, "spec": {}}, namespace)
    running = []

    async def started(**keda):
        webhook, extender, port = unused_ports(3)
        data = {
            "namespace": namespace,
            "server": {"address": "127.0.0.1"},
            "webhook": {"port": webhook},
            "extender": {"port": extender},
            "keda": {"enabled": True, "port": port, "namespace": keda_namespace, **keda},
        }
        server = Server(read_settings(Settings, data, {}), client, {}, (Certificates, Keda))
        running.append(Running(server, port, asyncio.create_task(server.run())))
        return running[-1]

    yield started
    for each in running:
        await each.stop()


async def decide(client, namespace, name, **status):
    body = {"status": {"state": "Active", **status}}
    await client.merge_patch(GPU_SCALERS.raw, name, body, namespace, subresource="status")


async def make(client, namespace, name, **changes):
    body = {"metadata": {"name": name}, "spec": spec(mode="observe", **changes)}
    await client.create(GPU_SCALERS.raw, body, namespace)


async def answered(ask, expected):
    """Once it is so: what is written reaches a server by its watch."""
    async with asyncio.timeout(60):
        while True:
            try:
                found = await ask()
            except grpc.aio.AioRpcError as error:
                found = error.code()
            if found == expected:
                return
            await asyncio.sleep(0.05)


async def test_every_server_reports_what_the_status_says(client, namespace, keda_namespace, start):
    one, other = await start(), await start()
    trusted = await one.trusted(client, keda_namespace)
    async with one.line(trusted) as first, other.line(trusted) as second:
        triggers = [Trigger(line, namespace, gpuScaler="room-scene") for line in (first, second)]
        for trigger in triggers:
            await answered(trigger.value, Code.NOT_FOUND)
        await make(client, namespace, "room-scene")
        for trigger in triggers:
            await answered(trigger.value, Code.UNAVAILABLE)
        stream = triggers[1].active_stream()
        await decide(client, namespace, "room-scene", desired=3)
        for trigger in triggers:
            await answered(trigger.value, 3)
        assert (await stream.read()).result is True
        stream.cancel()


async def test_another_server_goes_on_when_one_stops_and_its_streams_end_without_an_error(
    client, namespace, keda_namespace, start
):
    one, other = await start(), await start()
    trusted = await one.trusted(client, keda_namespace)
    await make(client, namespace, "room-scene")
    await decide(client, namespace, "room-scene", desired=0)
    async with one.line(trusted) as first, other.line(trusted) as second:
        leaving, staying = (Trigger(line, namespace, gpuScaler="room-scene") for line in (first, second))
        await answered(leaving.value, 0)
        stream = leaving.active_stream()
        assert (await stream.read()).result is False
        await one.stop()
        assert await stream.read() is grpc.aio.EOF
        await answered(staying.value, 0)


async def test_no_server_that_leads_is_an_error(client, namespace, keda_namespace, start):
    one = await start()
    trusted = await one.trusted(client, keda_namespace)
    await make(client, namespace, "room-scene")
    await decide(client, namespace, "room-scene", desired=2)
    async with one.line(trusted) as line:
        trigger = Trigger(line, namespace, gpuScaler="room-scene")
        await answered(trigger.value, 2)
        one.server.election.withdraw(60.0)  # its lease expires, and nobody else competes
        await answered(trigger.value, Code.UNAVAILABLE)
        with pytest.raises(grpc.aio.AioRpcError, match="no server leads"):
            await trigger.is_active()


async def test_the_bundle_in_kedas_namespace_is_put_right(
    client, namespace, keda_namespace, start, monkeypatch
):
    monkeypatch.setattr("cotenant.kube.scaler.keda.part.LOOK", 0.1)
    one = await start()
    trusted = await one.trusted(client, keda_namespace)
    assert trusted == one.server.context.use(CertificateKeeper).ca_bundle
    await client.merge_patch(CONFIG_MAPS, CA_CONFIG_MAP, {"data": {CA_KEY: "junk"}}, keda_namespace)
    async with asyncio.timeout(30):
        while await one.trusted(client, keda_namespace) != trusted:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


async def test_a_missing_namespace_is_said_and_the_server_is_ready(client, namespace, start):
    one = await start(namespace="nowhere")
    (part,) = [part for part in one.server.parts if isinstance(part, Keda)]
    async with asyncio.timeout(60):
        while "nowhere" not in (part.ready() or ""):  # noqa: ASYNC110 - it is asked, as /readyz asks it
            await asyncio.sleep(0.05)
        while any(one.server.ready().values()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert "nowhere" in one.server.leader_ready()["keda"]


async def test_nothing_listens_where_it_is_not_enabled(start):
    one = await start(enabled=False)
    await one.server.context.use(CertificateKeeper).wait_until_ready(30)
    (part,) = [part for part in one.server.parts if isinstance(part, Keda)]
    assert part.ready() is None
    assert list(one.server._informers) == []
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", one.port, ssl=ssl.create_default_context())

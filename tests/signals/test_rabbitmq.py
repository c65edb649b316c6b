"""RabbitMQ over AMQP and over its management API, asked of a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiormq
import pytest
import pytest_asyncio
from aiormq.abc import AbstractChannel
from signals.conftest import Opener, Vault
from signals.examples import example
from signals.forwarder import Forwarder
from signals.servers import RabbitMQ

from cotenant.signals.rabbitmq import figures
from cotenant.signals.signal import NoSample, Reading, SignalError

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
GUEST = {"username": "guest", "passwordFrom": {"secret": {"name": "rabbit", "key": "password"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """One server for the file: it takes seconds to start. Each test has a queue of its own."""
    server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    server.start()
    yield server
    server.stop()


@pytest_asyncio.fixture
async def channel(server: RabbitMQ) -> AsyncIterator[AbstractChannel]:
    connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{server.port}/")
    yield await connection.channel()
    await connection.close()


@pytest.fixture(autouse=True)
def password(secrets: Vault) -> None:
    secrets["rabbit", "password"] = "guest"


def over_amqp(server: RabbitMQ, name: str, **more: Any) -> dict[str, Any]:
    return {"rabbitmq": {"url": server.amqp, "queue": name, **GUEST, **more}, "inFlight": {"slots": True}}


def over_http(server: RabbitMQ, name: str, **more: Any) -> dict[str, Any]:
    return {"rabbitmq": {"url": server.management, "queue": name, **GUEST, **more}}


async def failure(signal: Any) -> str:
    with pytest.raises(SignalError) as failed:
        await signal.read()
    return str(failed.value)


async def until(read: Callable[[], Awaitable[Reading]], holds: Callable[[Reading], bool]) -> Reading:
    async with asyncio.timeout(60):
        for _ in range(10_000):
            try:
                reading = await read()
            except NoSample:
                pass
            else:
                if holds(reading):
                    return reading
            await asyncio.sleep(0.05)
    raise AssertionError


async def test_amqp_tells_the_depth_without_taking_or_creating_anything(
    server: RabbitMQ, channel: AbstractChannel, queue: Opener
):
    await channel.queue_declare("depth")
    for at in range(5):
        await channel.basic_publish(b"%d" % at, routing_key="depth")
    signal = queue(over_amqp(server, "depth"))
    for _ in range(2):
        reading = await signal.read()
        assert (reading.backlog, reading.in_flight, reading.arrived) == (5, None, None)
    taken = await channel.basic_get("depth")
    assert (await signal.read()).backlog == 4  # one that is worked on does not wait
    await channel.basic_ack(taken.delivery_tag)


async def test_the_management_api_tells_depth_counters_and_unacknowledged(
    server: RabbitMQ, channel: AbstractChannel, queue: Opener
):
    await channel.queue_declare("orders / urgent", durable=True)
    signal = queue(over_http(server, "orders / urgent"))
    reading = await until(signal.read, lambda each: each.backlog == 0)
    assert (reading.arrived, reading.completed, reading.in_flight) == (0, 0, 0)
    for at in range(6):
        await channel.basic_publish(b"%d" % at, routing_key="orders / urgent")
    first, _ = [await channel.basic_get("orders / urgent") for _ in range(2)]
    await channel.basic_ack(first.delivery_tag)
    await channel.basic_get("orders / urgent", no_ack=True)
    wanted = (3, 6, 2, 1)
    await until(
        signal.read, lambda each: (each.backlog, each.arrived, each.completed, each.in_flight) == wanted
    )


async def test_another_virtual_host_is_named_by_field_or_path(server: RabbitMQ, queue: Opener):
    _put(server, "/api/vhosts/team%2Fa", {})
    _put(server, "/api/permissions/team%2Fa/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    _put(server, "/api/queues/team%2Fa/jobs", {"durable": False})
    assert (await queue(over_amqp(server, "jobs", vhost="team/a")).read()).backlog == 0
    assert (await queue(over_amqp(server, "jobs", url=f"{server.amqp}/team%2Fa")).read()).backlog == 0
    signal = queue(over_http(server, "jobs", vhost="team/a"))
    assert (await until(signal.read, lambda _: True)).backlog == 0
    said = await failure(queue(over_amqp(server, "jobs", vhost="nowhere")))
    assert "no virtual host nowhere for this user: check vhost" in said


def _put(server: RabbitMQ, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(f"{server.management}{path}", json.dumps(body).encode(), method="PUT")
    request.add_header("Authorization", f"Basic {base64.b64encode(b'guest:guest').decode()}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request):
        pass


@pytest.mark.parametrize("over", [over_amqp, over_http])
async def test_a_queue_that_is_not_there_is_named_and_used_when_it_comes(
    over: Any, server: RabbitMQ, channel: AbstractChannel, queue: Opener
):
    name = f"later-{over.__name__}"
    signal = queue(over(server, name))
    for _ in range(3):
        said = await failure(signal)
        assert name in said
        assert "check queue and vhost" in said
    await channel.queue_declare(name)
    assert (await until(signal.read, lambda _: True)).backlog == 0


@pytest.mark.parametrize("over", [over_amqp, over_http])
async def test_a_wrong_password_is_refused_and_never_shown(
    over: Any, server: RabbitMQ, channel: AbstractChannel, queue: Opener, secrets: Vault, caplog
):
    await channel.queue_declare("guarded")
    secrets["rabbit", "password"] = "wrong-and-secret"
    said = await failure(queue(over(server, "guarded")))
    assert "refuse" in said
    assert "passwordFrom" in said
    written = over(server, "guarded")
    for name in ("username", "passwordFrom"):
        del written["rabbitmq"][name]
    written["rabbitmq"]["url"] = written["rabbitmq"]["url"].replace("://", "://guest:wrong-and-secret@")
    assert "wrong-and-secret" not in said + await failure(queue(written)) + caplog.text


async def test_a_thousand_signals_share_one_amqp_connection(
    server: RabbitMQ, channel: AbstractChannel, queue: Opener
):
    await channel.queue_declare("popular")
    signals = [queue(over_amqp(server, "popular" if at % 10 else "absent")) for at in range(1000)]
    results = await asyncio.gather(*(signal.read() for signal in signals), return_exceptions=True)
    assert sum(isinstance(each, Reading) for each in results) == 900
    assert all("no queue absent" in str(each) for each in results[::10])
    assert len({id(signal._access._held[1]) for signal in signals}) == 1


async def test_the_examples_of_the_page(
    server: RabbitMQ, channel: AbstractChannel, queue: Opener, secrets: Vault
):
    secrets["queue", "password"] = "guest"
    await channel.queue_declare("room-scene")
    await channel.basic_publish(b"", routing_key="room-scene")
    signal = queue(example("rabbitmq", 0, server.ports[1]))
    # A channel reports what it published, a queue what waits: for a moment one is ahead of the other.
    reading = await until(signal.read, lambda each: each.arrived == each.backlog == 1)
    assert (reading.completed, reading.in_flight) == (0, 0)
    assert (await queue(example("rabbitmq", 1, server.port)).read()).backlog == 1


async def test_a_queue_of_a_node_that_is_down_is_a_failure():
    with pytest.raises(SignalError, match="is down"):
        figures({"state": "down"}, "queue jobs", 0.0, counted=True)


async def test_a_server_without_statistics_gives_no_counters_and_no_zero():
    queue = {"messages_ready": 3, "messages_unacknowledged": 1, "state": "running"}
    reading = figures(queue, "queue jobs", 0.0, counted=False)
    assert (reading.backlog, reading.in_flight, reading.arrived, reading.completed) == (3, 1, None, None)
    with pytest.raises(NoSample):
        figures({"state": "running"}, "queue jobs", 0.0, counted=True)
    with pytest.raises(SignalError, match="not a number"):
        figures(queue | {"messages_ready": "many"}, "queue jobs", 0.0, counted=True)


async def test_a_server_that_goes_is_named_and_used_as_soon_as_it_comes_back(server: RabbitMQ, queue: Opener):
    _put(server, "/api/queues/%2F/kept", {"durable": True})
    way, management_way = Forwarder(server.port), Forwarder(server.ports[1])
    await way.up()
    await management_way.up()
    amqp = queue(over_amqp(server, "kept", url=f"amqp://127.0.0.1:{way.port}"))
    management = queue(over_http(server, "kept", url=f"http://127.0.0.1:{management_way.port}"))
    assert (await amqp.read()).backlog == 0
    await until(management.read, lambda _: True)
    for _ in range(2):
        await way.cut()
        await management_way.cut()
        assert f"amqp://127.0.0.1:{way.port} cannot be reached: Connection refused" in await failure(amqp)
        assert f"http://127.0.0.1:{management_way.port} cannot be reached" in await failure(management)
        await way.up()
        await management_way.up()
        assert (await amqp.read()).backlog == 0
        assert (await management.read()).backlog == 0
    await way.cut()
    await management_way.cut()

"""NATS JetStream, asked of a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
from cluster.testbed.certificates import Authority
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig
from signals.conftest import Opener, Vault
from signals.examples import example
from signals.servers import Nats

from cotenant.signals.signal import Reading, SignalError

pytestmark = pytest.mark.asyncio
ACCOUNTS = """
accounts {
  WORK { jetstream: enabled, users: [
    {user: worker, password: open-sesame}
    {user: stranger, password: open-sesame, permissions: {publish: ["jobs.>"], subscribe: ["_INBOX.>"]}}
  ] }
  PLAIN { users: [{user: plain, password: open-sesame}] }
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"), ACCOUNTS)
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def password(secrets: Vault) -> None:
    secrets["nats", "password"] = "open-sesame"


@pytest_asyncio.fixture
async def stream(server: Nats) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(server.url, user="worker", password="open-sesame")
    stream = client.jetstream()
    await stream.add_stream(name="jobs", subjects=["jobs.>"])
    await stream.add_consumer("jobs", ConsumerConfig(durable_name="workers", ack_policy="explicit"))
    yield stream
    await stream.delete_stream("jobs")
    await client.close()


def consumer(server: Nats, **more: Any) -> dict[str, Any]:
    password = {"secret": {"name": "nats", "key": "password"}}
    account = {"username": "worker", "passwordFrom": password}
    return {"nats": {"url": server.url, "stream": "jobs", "consumer": "workers", **account, **more}}


async def failure(signal: Any) -> str:
    with pytest.raises(SignalError) as failed:
        await signal.read()
    return str(failed.value)


def _figures(reading: Reading) -> tuple[float | None, ...]:
    return reading.backlog, reading.arrived, reading.completed, reading.in_flight


async def test_a_consumer_tells_what_waits_what_is_in_flight_and_counters(
    server: Nats, stream: JetStreamContext, queue: Opener
):
    signal = queue(consumer(server))
    assert _figures(await signal.read()) == (0, 0, 0, 0)
    for at in range(8):
        await stream.publish("jobs.image", b"%d" % at)
    worker = await stream.pull_subscribe_bind("workers", "jobs")
    first, second, _ = await worker.fetch(3)
    await first.ack_sync()
    assert _figures(await signal.read()) == (5, 8, 1, 2)
    await second.nak()
    taken = []
    while second.data not in taken:
        taken += [each.data for each in await worker.fetch(8, timeout=10)]
    # A message that is delivered once more has neither arrived nor been completed once more.
    backlog, arrived, completed, in_flight = _figures(await signal.read())
    assert (arrived, completed) == (8, 1)
    assert (backlog, in_flight) == (8 - 3 - len(taken) + 1, 2 + len(taken) - 1)


async def test_a_consumer_of_some_subjects_gives_no_counters(
    server: Nats, stream: JetStreamContext, queue: Opener
):
    config = ConsumerConfig(durable_name="images", ack_policy="explicit", filter_subject="jobs.image")
    await stream.add_consumer("jobs", config)
    for subject in ("jobs.image", "jobs.text", "jobs.image"):
        await stream.publish(subject, b"")
    assert _figures(await queue(consumer(server, consumer="images")).read()) == (2, None, None, 0)


async def test_what_is_not_there_is_named(server: Nats, stream: JetStreamContext, queue: Opener):
    said = await failure(queue(consumer(server, consumer="nobody")))
    assert "no consumer nobody of a stream jobs" in said
    assert "no consumer workers of a stream orders" in await failure(queue(consumer(server, stream="orders")))


async def test_an_account_without_jetstream_or_without_the_right_is_named(
    server: Nats, stream: JetStreamContext, queue: Opener, monkeypatch: pytest.MonkeyPatch
):
    assert "no JetStream for this account" in await failure(queue(consumer(server, username="plain")))
    monkeypatch.setattr("cotenant.signals.nats.TIMEOUT", 1.0)
    said = await failure(queue(consumer(server, username="stranger")))
    assert "allow $JS.API.CONSUMER.INFO.jobs.workers" in said


async def test_a_wrong_password_is_refused_and_never_shown(
    server: Nats, queue: Opener, secrets: Vault, caplog: pytest.LogCaptureFixture
):
    secrets["nats", "password"] = "wrong-and-secret"
    said = await failure(queue(consumer(server)))
    assert "refuses the credentials" in said
    assert "wrong-and-secret" not in said + caplog.text


async def test_a_server_that_goes_is_named_and_used_as_soon_as_it_comes_back(
    tmp_path: Path, queue: Opener, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cotenant.signals.nats.TIMEOUT", 1.0)
    server = Nats(tmp_path / "nats")
    signal = queue({"nats": {"url": server.url, "stream": "jobs", "consumer": "workers"}})
    said = await failure(signal)
    assert f"{server.url} cannot be reached" in said
    server.start()
    try:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="jobs", subjects=["jobs"])
        await stream.add_consumer("jobs", ConsumerConfig(durable_name="workers", ack_policy="explicit"))
        await stream.publish("jobs", b"")
        await client.close()
        assert (await signal.read()).backlog == 1
        assert (await queue(example("nats", 0, server.port)).read()).backlog == 1
        server.stop()
        said = await failure(signal)
        assert "cannot be reached" in said or "did not answer" in said
        server.start()
        assert (await signal.read()).backlog == 1
    finally:
        server.stop()


async def test_tls_with_the_authority_of_a_secret(
    tmp_path: Path, queue: Opener, secrets: Vault, authority: Authority
):
    pair = authority.issue("nats", user="nats", names=["nats.example"])
    server = Nats(tmp_path, f'tls {{ cert_file: "{pair.certificate}", key_file: "{pair.key}" }}', ACCOUNTS)
    server.start()
    secrets["tls", "ca.crt"] = authority.pair.certificate.read_text()
    trusted = {"caFrom": {"secret": {"name": "tls", "key": "ca.crt"}}}
    url = server.url.replace("nats://", "tls://")

    async def failure(**tls: Any) -> str:
        with pytest.raises(SignalError) as failed:
            await queue(consumer(server, url=url, tls=tls)).read()
        return str(failed.value)

    try:
        assert "has no consumer workers" in await failure(**trusted, serverName="nats.example")
        assert "check tls.caFrom and tls.serverName" in await failure(**trusted, serverName="other.example")
        assert "check tls.caFrom" in await failure(serverName="nats.example")
    finally:
        server.stop()

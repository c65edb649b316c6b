"""Redis lists and streams, asked of real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis
from cluster.testbed.certificates import Authority
from signals.conftest import Opener, Vault
from signals.examples import example
from signals.servers import Redis, Sentinel, free_ports

from cotenant.signals.opening import open_signal
from cotenant.signals.servers import RENEW, Servers
from cotenant.signals.signal import Reading, SignalError
from cotenant.signals.specification import QueueSpecification

pytestmark = pytest.mark.asyncio


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        for _ in range(10_000):
            if holds():
                return
            await asyncio.sleep(0.02)


def listed(url: str, name: str, **in_flight: Any) -> dict[str, Any]:
    return {"redis": {"url": url, "list": name}, "inFlight": in_flight or {"slots": True}}


async def failure(signal: Any) -> str:
    with pytest.raises(SignalError) as failed:
        await signal.read()
    return str(failed.value)


@pytest.fixture
def client(redis_server: Redis):
    with redis.Redis(port=redis_server.port) as client:
        client.flushall()
        yield client


async def test_the_length_of_a_list_is_the_backlog(redis_server: Redis, client: redis.Redis, queue: Opener):
    signal = queue(listed(redis_server.url, "jobs"))
    before = time.time()
    assert (await signal.read()).backlog == 0
    client.rpush("jobs", *range(7))
    reading = await signal.read()
    assert reading.backlog == 7
    assert (reading.arrived, reading.completed, reading.in_flight) == (None, None, None)
    assert before <= reading.at <= time.time()


async def test_messages_in_a_second_list_are_in_flight(
    redis_server: Redis, client: redis.Redis, queue: Opener
):
    signal = queue(listed(redis_server.url, "jobs", list="working"))
    client.rpush("jobs", *range(5))
    for _ in range(2):
        client.lmove("jobs", "working")
    reading = await signal.read()
    assert (reading.backlog, reading.in_flight) == (3, 2)


async def test_a_key_in_flight_is_a_number_or_a_collection_and_may_change(
    redis_server: Redis, client: redis.Redis, queue: Opener
):
    signal = queue(listed(redis_server.url, "jobs", key="busy"))

    async def in_flight() -> float | None:
        client_reading = await signal.read()
        return client_reading.in_flight

    assert await in_flight() == 0  # nobody has written it yet
    client.set("busy", 3)
    assert await in_flight() == 3
    client.set("busy", "2.0\n")
    assert await in_flight() == 2
    client.delete("busy")
    client.hset("busy", mapping={"a": 1, "b": 2})  # as Celery keeps what is not acknowledged
    assert await in_flight() == 2
    client.delete("busy")
    client.zadd("busy", {"a": 1})
    assert await in_flight() == 1
    client.delete("busy")
    client.sadd("busy", *range(9))
    assert await in_flight() == 9
    client.delete("busy")
    client.rpush("busy", 1, 2)
    assert await in_flight() == 2


@pytest.mark.parametrize("value", ["many", "-1", "0x10", "x" * 1000, "1e99", "inf"])
async def test_a_key_in_flight_that_is_no_count_is_refused(
    value: str, redis_server: Redis, client: redis.Redis, queue: Opener
):
    client.set("busy", value)
    said = await failure(queue(listed(redis_server.url, "jobs", key="busy")))
    assert said.startswith("inFlight.key: busy of redis://127.0.0.1:")
    assert len(said) < 300


async def test_nan_in_a_key_is_no_sample(redis_server: Redis, client: redis.Redis, queue: Opener):
    client.set("busy", "NaN")
    assert "no figure at present" in await failure(queue(listed(redis_server.url, "jobs", key="busy")))


async def test_a_list_that_is_a_set_is_named(redis_server: Redis, client: redis.Redis, queue: Opener):
    client.sadd("jobs", "a")
    said = await failure(queue(listed(redis_server.url, "jobs")))
    assert f"list: jobs of redis://127.0.0.1:{redis_server.port} is a set, not a list" in said
    client.delete("jobs")
    client.set("working", 1)
    said = await failure(queue(listed(redis_server.url, "jobs", list="working")))
    assert "inFlight.list: working" in said
    assert "is a text or number, not a list" in said


async def test_a_group_tells_its_lag_its_pending_entries_and_counters(
    redis_server: Redis, client: redis.Redis, queue: Opener
):
    client.xgroup_create("events", "workers", id="0", mkstream=True)
    signal = queue({"redis": {"url": redis_server.url, "stream": "events", "group": "workers"}})
    assert _figures(await signal.read()) == (0, 0, 0, 0)
    for at in range(10):
        client.xadd("events", {"n": at})
    ((_, entries),) = client.xreadgroup("workers", "one", {"events": ">"}, count=4)
    client.xack("events", "workers", entries[0][0])
    assert _figures(await signal.read()) == (6, 10, 1, 3)
    client.xtrim("events", maxlen=0)
    for entry, _ in entries[1:]:
        client.xack("events", "workers", entry)
    client.xadd("events", {"n": 10})
    backlog, arrived, completed, in_flight = _figures(await signal.read())
    assert (completed, in_flight) == (4, 0)
    assert backlog >= 1
    assert arrived is None or arrived >= 10


def _figures(reading: Reading) -> tuple[float | None, ...]:
    return reading.backlog, reading.arrived, reading.completed, reading.in_flight


async def test_a_lag_that_redis_does_not_know_is_estimated_and_never_a_false_zero(
    redis_server: Redis, client: redis.Redis, queue: Opener
):
    entries = [client.xadd("events", {"n": at}) for at in range(6)]
    client.xgroup_create("events", "late", id=entries[1])
    signal = queue({"redis": {"url": redis_server.url, "stream": "events", "group": "late"}})
    reading = await signal.read()
    assert 4 <= reading.backlog <= 6
    client.xreadgroup("late", "one", {"events": ">"})
    client.xadd("events", {"n": 6})
    deleted = client.xadd("events", {"n": 7})
    client.xdel("events", deleted)  # Redis gives no lag while a deleted entry is ahead of the group
    assert client.xinfo_groups("events")[0]["lag"] is None
    assert (await signal.read()).backlog >= 1
    client.xreadgroup("late", "one", {"events": ">"})
    assert (await signal.read()).backlog == 0


async def test_a_stream_or_group_that_is_not_there_is_named_with_what_creates_it(
    redis_server: Redis, client: redis.Redis, queue: Opener
):
    signal = queue({"redis": {"url": redis_server.url, "stream": "events", "group": "workers"}})
    assert "XGROUP CREATE events workers $ MKSTREAM" in await failure(signal)
    client.xadd("events", {"n": 1})
    assert "has no group workers" in await failure(signal)
    client.xgroup_create("events", "workers", id="0")
    assert (await signal.read()).backlog == 1


async def test_the_database_of_the_url_is_asked(redis_server: Redis, client: redis.Redis, queue: Opener):
    with redis.Redis(port=redis_server.port, db=3) as other:
        other.rpush("jobs", 1)
        assert (await queue(listed(f"{redis_server.url}/3", "jobs")).read()).backlog == 1
        assert (await queue(listed(f"{redis_server.url}/0", "jobs")).read()).backlog == 0


async def test_a_server_that_is_not_there_is_named_and_used_as_soon_as_it_comes(
    redis_of: Callable[..., Redis], queue: Opener
):
    server = redis_of()
    server.stop()
    signal = queue(listed(server.url, "jobs"))
    said = await failure(signal)
    assert f"redis://127.0.0.1:{server.port} cannot be reached" in said
    assert "Connection refused" in said
    server.start()
    assert (await signal.read()).backlog == 0
    server.stop()
    await failure(signal)
    server.start()
    assert (await signal.read()).backlog == 0


async def test_a_server_that_does_not_answer_fails_in_time_and_serves_again(
    redis_of: Callable[..., Redis], queue: Opener, monkeypatch: pytest.MonkeyPatch
):
    server = redis_of()
    monkeypatch.setattr("cotenant.signals.redis_client.TIMEOUT", 2.0)
    signal = queue(listed(server.url, "jobs"))
    await signal.read()
    server.pause()
    assert "did not answer within 2 s" in await failure(signal)
    server.resume()
    assert (await signal.read()).backlog == 0


async def test_a_password_comes_from_a_secret_and_a_wrong_one_is_never_shown(
    redis_of: Callable[..., Redis], queue: Opener, secrets: Vault, monkeypatch: pytest.MonkeyPatch
):
    server = redis_of("requirepass open-sesame", "user reader on >let-me/read ~jobs +llen +type")
    written = listed(server.url, "jobs")
    assert "asks for a password" in await failure(queue(written))
    written["redis"]["passwordFrom"] = {"secret": {"name": "redis", "key": "password"}}
    assert "there is no Secret redis" in await failure(queue(written))
    secrets["redis", "password"] = "wrong-and-secret"
    signal = queue(written)
    said = await failure(signal)
    assert "refuses the credentials" in said
    assert "check username and passwordFrom" in said
    assert "wrong-and-secret" not in said
    secrets["redis", "password"] = "open-sesame\n"
    await failure(signal)  # a Secret is not read again at every poll
    monkeypatch.setattr("cotenant.signals.servers.RENEW", 0.0)
    assert (await signal.read()).backlog == 0

    secrets["redis", "reader"] = "let-me/read"
    written["redis"] |= {"username": "reader", "passwordFrom": {"secret": {"name": "redis", "key": "reader"}}}
    assert (await queue(written).read()).backlog == 0
    written["redis"]["list"] = "others"
    assert "the ACL user lacks a right" in await failure(queue(written))
    in_url = listed(f"redis://reader:let-me%2Fread@127.0.0.1:{server.port}", "jobs")
    assert (await queue(in_url).read()).backlog == 0
    in_url["redis"]["url"] = f"redis://reader:wrong-and-secret@127.0.0.1:{server.port}"
    assert "wrong-and-secret" not in await failure(queue(in_url))
    assert RENEW >= 10


async def test_tls_with_the_authority_and_the_client_certificate_of_secrets(
    redis_of: Callable[..., Redis], queue: Opener, secrets: Vault, authority: Authority
):
    pair = authority.issue("redis", user="redis", names=["redis.example"])
    server = redis_of(
        f"tls-cert-file {pair.certificate}",
        f"tls-key-file {pair.key}",
        f"tls-ca-cert-file {authority.pair.certificate}",
        plain=False,
    )
    mine = authority.issue("cotenant", user="cotenant")
    secrets |= {
        ("tls", "ca.crt"): authority.pair.certificate.read_text(),
        ("tls", "tls.crt"): mine.certificate.read_text(),
        ("tls", "tls.key"): mine.key.read_text(),
    }
    ca, certificate, key = (
        {"secret": {"name": "tls", "key": key}} for key in ("ca.crt", "tls.crt", "tls.key")
    )
    written = listed(f"rediss://127.0.0.1:{server.port}", "jobs")

    async def with_tls(**tls: Any) -> str:
        signal = queue(written | {"redis": written["redis"] | {"tls": tls}})
        try:
            return str((await signal.read()).backlog)
        except SignalError as error:
            return str(error)

    whole = {"caFrom": ca, "certificateFrom": certificate, "keyFrom": key, "serverName": "redis.example"}
    assert await with_tls(**whole) == "0.0"
    assert "check tls.caFrom" in await with_tls()
    assert "check tls.caFrom and tls.serverName" in await with_tls(**whole | {"serverName": "other.example"})
    said = await with_tls(caFrom=ca, serverName="redis.example")
    assert "tls.certificateFrom" in said
    assert await with_tls(insecureSkipVerify=True, certificateFrom=certificate, keyFrom=key) == "0.0"
    secrets["tls", "tls.key"] = "not a key"
    assert "not a certificate in PEM and its private key" in await with_tls(**whole)
    secrets["tls", "ca.crt"] = "not a certificate"
    assert "not a certificate in PEM" in await with_tls(caFrom=ca)


async def test_plain_redis_where_tls_was_asked_for_says_so(
    redis_server: Redis, queue: Opener, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cotenant.signals.redis_client.TIMEOUT", 0.3)
    said = await failure(queue(listed(f"rediss://127.0.0.1:{redis_server.port}", "jobs")))
    assert "did not answer within 0.3 s: does it speak TLS on this port?" in said


async def test_a_sentinel_names_the_master_also_after_a_failover(
    tmp_path, redis_of: Callable[..., Redis], queue: Opener, secrets: Vault
):
    first = redis_of("requirepass data", "masterauth data")
    second = redis_of("requirepass data", "masterauth data", f"replicaof 127.0.0.1 {first.port}")
    with redis.Redis(port=first.port, password="data") as client:
        client.rpush("jobs", 1, 2, 3)
    with redis.Redis(port=second.port, password="data") as client:
        await until(lambda: client.llen("jobs") == 3)
    options = ("down-after-milliseconds main 300", "failover-timeout main 1000", "auth-pass main data")
    sentinel = Sentinel(
        tmp_path / "sentinel", first.port, *(f"sentinel {each}" for each in options), "requirepass guard"
    )
    sentinel.start()
    try:
        secrets |= {("redis", "data"): "data", ("redis", "guard"): "guard"}
        written = listed(f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0", "jobs")
        written["redis"] |= {
            "passwordFrom": {"secret": {"name": "redis", "key": "data"}},
            "sentinelPasswordFrom": {"secret": {"name": "redis", "key": "guard"}},
        }
        signal = queue(written)
        assert (await signal.read()).backlog == 3
        unknown = {"url": f"redis+sentinel://127.0.0.1:{sentinel.port}/other"}
        assert "no Sentinel can be reached that knows a master" in await failure(
            queue(written | {"redis": written["redis"] | unknown})
        )
        with redis.Redis(port=sentinel.port, password="guard") as control:
            await until(lambda: control.execute_command("SENTINEL REPLICAS main"))
        unguarded = {
            name: value for name, value in written["redis"].items() if name != "sentinelPasswordFrom"
        }
        assert "check sentinelPasswordFrom" in await failure(queue(written | {"redis": unguarded}))
        first.stop()
        for _ in range(300):
            try:
                reading = await signal.read()
            except SignalError:
                await asyncio.sleep(0.1)
            else:
                break
        assert reading.backlog == 3
        with redis.Redis(port=second.port, password="data") as client:
            assert client.info("replication")["role"] == "master"
    finally:
        sentinel.stop()


async def test_a_cluster_is_asked_wherever_a_key_lies(redis_of: Callable[..., Redis], queue: Opener):
    nodes = [redis_of("cluster-enabled yes", f"cluster-port {port}") for port in free_ports(2)]
    clients = [redis.Redis(port=node.port) for node in nodes]
    clients[0].execute_command("CLUSTER ADDSLOTSRANGE", 0, 8191)
    clients[1].execute_command("CLUSTER ADDSLOTSRANGE", 8192, 16383)
    port = nodes[1].options[1].split()[1]
    clients[0].execute_command("CLUSTER MEET", "127.0.0.1", nodes[1].port, port)
    await until(lambda: all(each.cluster("INFO")["cluster_state"] == "ok" for each in clients))
    await until(lambda: all(each.cluster("INFO")["cluster_known_nodes"] == "2" for each in clients))
    client = clients[0]
    names = ["jobs", "others", "more", "tasks", "a", "b"]
    for at, name in enumerate(names, 1):
        home = 0 if client.cluster("KEYSLOT", name) <= 8191 else 1
        clients[home].rpush(name, *range(at))
    url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
    signals = [queue(listed(url, name)) for name in names]
    readings = await asyncio.gather(*(signal.read() for signal in signals))
    assert [reading.backlog for reading in readings] == [1, 2, 3, 4, 5, 6]
    assert len({client.cluster("KEYSLOT", name) <= 8191 for name in names}) == 2
    far = names[next(at for at, name in enumerate(names) if client.cluster("KEYSLOT", name) > 8191)]
    assert "write redis+cluster://" in await failure(queue(listed(nodes[0].url, far)))
    for client in clients:
        client.close()


async def test_a_thousand_signals_share_one_connection(
    redis_server: Redis, client: redis.Redis, queue: Opener
):
    client.rpush("jobs", 1, 2)
    signals = [
        queue(listed(redis_server.url, "jobs" if at % 2 else "empty", key="busy")) for at in range(1000)
    ]
    before = int(client.info("stats")["total_connections_received"])
    for _ in range(3):
        readings = await asyncio.gather(*(signal.read() for signal in signals))
        assert [reading.backlog for reading in readings] == [0, 2] * 500
    assert int(client.info("stats")["total_connections_received"]) - before == 1
    for signal in signals[:-1]:
        await signal.close()
    assert (await signals[-1].read()).backlog == 2
    await signals[-1].close()
    await until(lambda: len(client.client_list()) == 1)


async def test_signals_with_other_credentials_share_nothing(
    redis_of: Callable[..., Redis], queue: Opener, secrets: Vault
):
    server = redis_of("requirepass open-sesame")
    secrets["redis", "password"] = "open-sesame"
    opened = listed(server.url, "jobs")
    opened["redis"]["passwordFrom"] = {"secret": {"name": "redis", "key": "password"}}
    assert (await queue(opened).read()).backlog == 0
    assert "asks for a password" in await failure(queue(listed(server.url, "jobs")))


async def test_one_that_stops_waiting_does_not_disturb_the_others(redis_server: Redis, queue: Opener):
    signals = [queue(listed(redis_server.url, "jobs")) for _ in range(20)]
    tasks = [asyncio.create_task(signal.read()) for signal in signals]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Reading) for result in results[1::2])


async def test_a_signal_on_its_own_closes_what_it_opened(redis_server: Redis, secrets: Vault):
    spec = msgspec.convert(listed(redis_server.url, "jobs"), QueueSpecification)
    signal = open_signal(spec, secrets)
    await signal.read()
    await signal.close()
    servers = Servers()
    signal = open_signal(spec, secrets, servers)
    await signal.read()
    await signal.close()
    assert not servers._clients


async def test_the_examples_of_the_page(
    redis_server: Redis,
    client: redis.Redis,
    redis_of: Callable[..., Redis],
    queue: Opener,
    secrets: Vault,
    authority: Authority,
):
    client.rpush("room-scene", 1, 2)
    client.rpush("room-scene:working", 3)
    assert _figures(await queue(example("redis", 0, redis_server.port)).read()) == (2, None, None, 1)
    client.xgroup_create("events", "workers", id="0", mkstream=True)
    client.xadd("events", {"n": 1})
    assert _figures(await queue(example("redis", 1, redis_server.port)).read()) == (1, 1, 0, 0)

    pair = authority.issue("queue", user="queue", addresses=["127.0.0.1"])
    server = redis_of(
        f"tls-cert-file {pair.certificate}",
        f"tls-key-file {pair.key}",
        f"tls-ca-cert-file {authority.pair.certificate}",
        "tls-auth-clients no",
        "user default off",
        "user scaler on >from-a-secret ~room-scene +llen +type",
        plain=False,
    )
    secrets |= {
        ("queue", "password"): "from-a-secret",
        ("queue", "ca.crt"): authority.pair.certificate.read_text(),
    }
    assert (await queue(example("redis", 2, server.port)).read()).backlog == 0

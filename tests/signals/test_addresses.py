"""Addresses that signals are never read from: refused when the connection is made, whatever a name said before."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from ipaddress import ip_address
from typing import Any

import pytest
from signals.conftest import Opener

from cotenant.signals.addresses import allowed_addresses, refusal
from cotenant.signals.signal import SignalError

REFUSED = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "100.100.100.200",
    "168.63.129.16",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "224.0.0.1",
    "255.255.255.255",
    "ff02::1",
]
QUEUES: dict[str, dict[str, Any]] = {
    "redis": {"redis": {"url": "redis://rebound.example:6379", "list": "jobs"}, "inFlight": {"slots": True}},
    "rediss": {"redis": {"url": "rediss://rebound.example", "stream": "jobs", "group": "workers"}},
    "sentinel": {
        "redis": {"url": "redis+sentinel://rebound.example/main", "list": "jobs"},
        "inFlight": {"slots": True},
    },
    "cluster": {
        "redis": {"url": "redis+cluster://rebound.example", "list": "jobs"},
        "inFlight": {"slots": True},
    },
    "amqp": {"rabbitmq": {"url": "amqp://rebound.example", "queue": "jobs"}, "inFlight": {"slots": True}},
    "management": {"rabbitmq": {"url": "http://rebound.example:15672", "queue": "jobs"}},
    "prometheus": {"prometheus": {"url": "http://rebound.example", "query": "up", "inFlight": "up"}},
    "http": {"http": {"url": "https://rebound.example", "path": "depth", "inFlight": "busy"}},
    "nats": {"nats": {"url": "nats://rebound.example", "stream": "jobs", "consumer": "workers"}},
}


@pytest.mark.parametrize("address", REFUSED)
def test_link_local_metadata_and_multicast_addresses_are_refused(address: str):
    assert refusal(ip_address(address))


@pytest.mark.parametrize(
    "address", ["10.96.0.10", "127.0.0.1", "192.168.1.4", "8.8.8.8", "fd00:1::2", "::1", "::"]
)
def test_addresses_of_services_are_allowed(address: str):
    assert refusal(ip_address(address)) is None


LOOPBACK = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "0.1.2.3",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
]


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_addresses_are_refused_where_others_write_the_scalers(address: str):
    assert refusal(ip_address(address), loopback=False)
    assert refusal(ip_address("10.96.0.10"), loopback=False) is None


SPELLINGS = [
    "localhost",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "rebound.example",
]


@pytest.mark.asyncio
@pytest.mark.parametrize("host", SPELLINGS)
async def test_however_loopback_is_written_no_signal_connects_to_it_in_a_cluster(
    host: str, in_cluster: Opener, monkeypatch: pytest.MonkeyPatch
):
    Names(monkeypatch, ["127.0.0.1", "::1"])
    reached: list[Any] = []
    listening = await asyncio.start_server(lambda reader, writer: reached.append(writer), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    for kind, written in QUEUES.items():
        text = re.sub(r"rebound\.example(:\d+)?", f"{host}:{port}", json.dumps(written))
        with pytest.raises(
            SignalError, match=r"a loopback address, the server's own: signals are not read|not valid"
        ):
            await in_cluster(json.loads(text)).read()
        assert reached == [], kind
    listening.close()


class Names:
    """Answers for `rebound.example`; every other name as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), 0
        real = socket.getaddrinfo

        def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
            if host not in {"rebound.example", b"rebound.example"}:
                return real(host, port, *rest, **named)
            self.asked += 1
            found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in found]
            return [
                (family, socket.SOCK_STREAM, 6, "", (each, port) + ((0, 0) if ":" in each else ()))
                for family, each in zip(families, found, strict=True)
            ]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", QUEUES)
async def test_a_name_of_a_metadata_service_is_refused_by_every_kind_of_signal(
    kind: str, queue: Opener, monkeypatch: pytest.MonkeyPatch
):
    Names(monkeypatch, ["169.254.169.254", "fe80::1"])
    with pytest.raises(SignalError, match="signals are not read from there"):
        await queue(QUEUES[kind]).read()


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", QUEUES)
async def test_a_name_that_changes_after_it_was_checked_reaches_nothing_else(
    kind: str, queue: Opener, monkeypatch: pytest.MonkeyPatch
):
    """A name that answers a good address first and then, for a moment, that of a metadata service."""
    Names(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
    connected: list[str] = []
    real = asyncio.get_running_loop().sock_connect

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        connected.append(address[0])
        await real(sock, address)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    signal = queue(QUEUES[kind])
    for _ in range(3):
        with pytest.raises(SignalError):
            await signal.read()
    assert set(connected) <= {"127.0.0.1"}


@pytest.mark.asyncio
async def test_allowed_addresses_of_a_name_are_used_beside_refused_ones(monkeypatch: pytest.MonkeyPatch):
    Names(monkeypatch, ["fe80::1", "10.0.0.7"])
    assert await allowed_addresses("rebound.example", 6379) == ["10.0.0.7"]


@pytest.mark.asyncio
async def test_a_name_that_does_not_exist_is_said(queue: Opener):
    for kind in ("redis", "amqp", "http", "nats"):
        written = {
            name: {
                key: str(value).replace("rebound.example", "nowhere.invalid") for key, value in part.items()
            }
            if name != "inFlight"
            else part
            for name, part in QUEUES[kind].items()
        }
        with pytest.raises(SignalError, match="cannot be resolved"):
            await queue(written).read()

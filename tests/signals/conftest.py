from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import needs
import pytest
import pytest_asyncio
from cluster.testbed.certificates import Authority
from signals import servers

from cotenant.signals.opening import open_query, open_signal
from cotenant.signals.servers import Servers
from cotenant.signals.signal import Query, Signal, SignalError
from cotenant.signals.specification import QuerySpecification, QueueSpecification


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")


class Vault(dict[tuple[str, str], str]):
    """Secrets by name and key, and which were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, str]] = []

    async def __call__(self, name: str, key: str) -> str:
        self.reads.append((name, key))
        if (name, key) not in self:
            raise SignalError(f"there is no Secret {name}")
        return self[name, key]


@pytest.fixture
def secrets() -> Vault:
    return Vault()


@pytest_asyncio.fixture
async def shared() -> AsyncIterator[Servers]:
    """The clients of one process."""
    servers = Servers()
    yield servers
    await servers.close()


Opener = Callable[[dict[str, Any]], Signal]
QueryOpener = Callable[[dict[str, Any]], Query]


@pytest.fixture
def queue(secrets: Vault, shared: Servers) -> Opener:
    """Opens what is written below `queue:`."""
    return lambda written: open_signal(msgspec.convert(written, QueueSpecification), secrets, shared)


@pytest_asyncio.fixture
async def in_cluster(secrets: Vault) -> AsyncIterator[Opener]:
    """Opens what is written below `queue:`, as a server in a cluster does."""
    servers = Servers(loopback=False)
    yield lambda written: open_signal(msgspec.convert(written, QueueSpecification), secrets, servers)
    await servers.close()


@pytest.fixture
def query(secrets: Vault, shared: Servers) -> QueryOpener:
    """Opens what is written below `query:`."""
    return lambda written: open_query(msgspec.convert(written, QuerySpecification), secrets, shared)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Redis]:
    """One Redis for all tests, each of which uses keys of its own."""
    server = servers.Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority that is not among the system's."""
    return Authority(tmp_path / "authority", "queues")


@pytest.fixture
def redis_of(tmp_path: Path) -> Iterator[Callable[..., servers.Redis]]:
    """Starts a Redis with further lines of configuration."""
    made: list[servers.Redis] = []

    def make(*options: str, plain: bool = True) -> servers.Redis:
        made.append(servers.Redis(tmp_path / f"redis-{len(made)}", *options, plain=plain))
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.stop()

from __future__ import annotations

from collections.abc import Iterator

import needs
import pytest
from advice.backfilled import Backfilled


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine", "prometheus")


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    """A real Prometheus that has the history of a small cluster."""
    server = Backfilled(tmp_path_factory.mktemp("prometheus"))
    server.start()
    yield server
    server.stop()

from __future__ import annotations

from pathlib import Path

import needs
import pytest
from shim.slotted import GIB, Bench


@pytest.fixture
def make_bench(tmp_path: Path):
    """Makes simulated cards by a spec, with nothing granted yet."""
    made: list[Bench] = []

    def make(spec: str = "1x16GiB") -> Bench:
        made.append(Bench(tmp_path, spec))
        return made[-1]

    yield make
    for bench in made:
        bench.end()


@pytest.fixture
def bench(make_bench) -> Bench:
    """Two GiB granted of sixteen."""
    bench = make_bench()
    bench.grant(2 * GIB)
    return bench


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")

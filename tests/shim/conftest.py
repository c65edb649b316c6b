from __future__ import annotations

from pathlib import Path

import pytest
from shim.slotted import GIB, Bench


@pytest.fixture
def make_bench(tmp_path: Path):
    return lambda spec="1x16GiB": Bench(tmp_path, spec)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two GiB granted of sixteen."""
    bench = Bench(tmp_path)
    bench.grant(2 * GIB)
    return bench

"""NVML, slots and enforcers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")


@pytest.fixture
def on_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 32 MiB."""
    folder = tmp_path / "tmpfs"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "cotenant", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)

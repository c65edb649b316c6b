"""The servers that signals are tested with: found, or a reason in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import servers


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_a_machine_without_apt_keeps_the_reason():
    with pytest.raises(servers.CannotGet, match=r"python scripts/servers\.py fetches it"):
        servers.find("redis")
    with pytest.raises(
        servers.CannotGet, match="redis cannot be had on this machine: there is no apt-get here"
    ):
        servers.fetch("redis")
    with pytest.raises(servers.CannotGet, match="there is no apt-get here"):
        servers.find("redis")


def test_what_is_on_path_is_taken(tmp_path: Path):
    program = tmp_path / "bin" / "redis-server"
    program.parent.mkdir()
    program.touch(mode=0o755)
    servers.fetch("redis")
    assert servers.find("redis").path == program

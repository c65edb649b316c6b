"""Grants in which real processes ask what their framework is to be told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import needs
import pytest
from shim.slotted import Bench

from cotenant.local import home

SOURCE = Path(__file__).resolve().parents[2] / "src"
VARIABLES = ("COTENANT_", "ALIYUN_", "VOLCANO_", "PYTORCH_", "XLA_", "TF_", "CUPY_", "LD_PRELOAD")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that this package reads or writes is set, except by a test."""
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        monkeypatch.delenv(name)


class Simulated:
    """`cotenant run` on simulated cards; the command is a Python program."""

    def __init__(self, folder: Path, spec: str) -> None:
        self.home, self.spec = folder, spec
        self.environ = {**os.environ, "COTENANT_HOME": str(folder), "PYTHONPATH": str(SOURCE)}

    def run(self, *words: str) -> str:
        """Runs it as `cotenant run WORDS`, and returns what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "cotenant.cli.main", "--simulate", self.spec, "run", "-q", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, code: str, *options: str) -> dict:
        """Runs a program that prints JSON."""
        return json.loads(self.run(*options, "--", sys.executable, "-c", textwrap.dedent(code)))


@pytest.fixture
def simulated(tmp_path: Path):
    made: list[Simulated] = []

    def make(spec: str = "1x16GiB") -> Simulated:
        made.append(Simulated(tmp_path / "home", spec))
        return made[-1]

    yield make
    for each in made:
        shutil.rmtree(home.prepare(each.home, each.spec).runtime.parent.parent, ignore_errors=True)


class SlottedBench(Bench):
    """A slot on a simulated card; programs find this source tree."""

    def env(self, *, shim: bool = True, **more: str) -> dict[str, str]:
        return super().env(
            shim=shim, **{"PYTHONPATH": f"{SOURCE}:{Path(__file__).parents[1] / 'shim'}", **more}
        )


@pytest.fixture
def bench(tmp_path: Path):
    made = SlottedBench(tmp_path)
    yield made
    made.end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for fixture in ("simulated", "bench"):
        needs.mark(items, __file__, "machine", fixture)

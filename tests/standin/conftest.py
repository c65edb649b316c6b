"""Fresh simulated cards, and programs that use them as they would use real ones: through the library path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import needs
import pytest

from cotenant.hardware.standin.driver import StandIn, create, environment, parse_description

MIB = 2**20
GIB = 2**30

BINDINGS = """
import os, sys, time
from cuda.bindings import driver as cuda
MIB, GIB = 2**20, 2**30

def ok(answer):
    assert answer[0] == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]

def begin(device=0):
    ok(cuda.cuInit(0))
    context = ok(cuda.cuDevicePrimaryCtxRetain(device))
    ok(cuda.cuCtxPushCurrent(context))
    return context

def free():
    return ok(cuda.cuMemGetInfo())[0]

def hold():
    print("ready", flush=True)
    sys.stdin.read()
"""
"""What programs of these tests begin with: cuda-bindings, and a way to stay until they are told to end."""


class Machine:
    """Simulated cards and the programs on them."""

    def __init__(self, folder: Path, spec: str, context_bytes: int, launch_seconds: float) -> None:
        self.path = folder / "cards"
        described = parse_description(spec)
        create(self.path, described.cards, context_bytes, launch_seconds, described.driver)
        self.cards = StandIn(self.path)
        self.uuids = [card.uuid for card in self.cards.cards()]
        self.programs: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        plain = {k: v for k, v in os.environ.items() if k not in {"CUDA_VISIBLE_DEVICES", "LD_PRELOAD"}}
        return environment(self.path, {**plain, "PYTHONDONTWRITEBYTECODE": "1", **more})

    def run(self, code: str, **more: str) -> str:
        """What a Python program prints; it has to end well."""
        return self.call(sys.executable, "-c", BINDINGS + code, **more)

    def call(self, *command: str, **more: str) -> str:
        done = subprocess.run(
            command, env=self.environment(**more), capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, code: str, **more: str) -> subprocess.Popen[str]:
        """A program that runs until its standard input is closed; returns when it says that it is ready."""
        program = subprocess.Popen(
            [sys.executable, "-c", BINDINGS + code],
            env=self.environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    def used(self, card: int = 0) -> int:
        return self.cards.used(self.uuids[card])

    def close(self) -> None:
        for program in self.programs:
            with program:  # closes its pipes
                program.kill()


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes simulated cards: `standin("2x16GiB", launch_seconds=0.01)`."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="cotenant-test-", dir=shared if shared.is_dir() else tmp_path))
    machines: list[Machine] = []

    def make(spec: str = "1x16GiB", context_bytes: int = 256 * MIB, launch_seconds: float = 0.0) -> Machine:
        place = folder / str(len(machines))
        place.mkdir()
        machines.append(Machine(place, spec, context_bytes, launch_seconds))
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()
    shutil.rmtree(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")

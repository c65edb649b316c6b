"""Jobs and cards to reason about, and a machine with simulated cards on which real commands run."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import needs
import pytest
import warm

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.hardware import libraries
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.nvml import CardReading, Readings
from cotenant.hardware.standin.driver import StandIn
from cotenant.local import home
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.processes import Process, identify
from cotenant.local.store import LedgerStore

GIB = 1 << 30
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture
def make_job():
    """A job of this very process unless said otherwise."""

    def make(id, memory=4 * GIB, **fields):
        given = {
            "name": id,
            "user": "me",
            "command": ("train",),
            "demand": Demand(Memory(bytes=memory)),
            "mode": "enforce",
            "enforcer": "shim",
            "compute": None,
            "process": identify(os.getpid()),
            "since": now(),
            "slot": Path("/nonexistent") / id,
        }
        return Job(id=id, **{**given, **fields})

    return make


@pytest.fixture
def dead():
    return Process(2**22 + 1, 1, "some other boot")


class PlainCards:
    """Cards on which nothing happens but what a test says."""

    def __init__(self, *sizes):
        self.cards = [CardReading(GPU(f"GPU-{at}", at, "T4", size), used=0) for at, size in enumerate(sizes)]
        self.lost = ()

    def read(self):
        return Readings(tuple(self.cards), self.lost)

    def close(self):
        pass


@pytest.fixture
def plain_cards():
    return PlainCards(16 * GIB, 16 * GIB)


@pytest.fixture
def plain_machine(tmp_path, plain_cards):
    """The books without a driver: for what is decided, not for what runs."""
    place = home.prepare(tmp_path / "home", tmpfs=tmp_path)
    machine = Machine(
        place, LedgerStore(place), plain_cards, Shim(Path("/nonexistent/libcotenant.so")), 256 << 20
    )
    yield machine
    machine.store.close()


class Simulated:
    """`cotenant --simulate SPEC` with a home of its own, and what the stand-in itself says."""

    def __init__(self, base, spec):
        self.spec = spec
        self.base = base
        self.environ = {**os.environ, "COTENANT_HOME": str(base), "COTENANT_SIMULATE": spec}
        self.home = home.prepare(base, spec)
        self.started = []

    @property
    def shim(self):
        return libraries.shim()

    def line(self, *words):
        return [sys.executable, "-m", "cotenant.cli.main", *map(str, words)]

    def __call__(self, *words, env=None, timeout=60, **options):
        """Call it and wait for its end."""
        given = {**self.environ, **(env or {})}
        if not options and words[0] != "run":  # a job is started as users start it
            return warm.run(words, env=given, timeout=timeout)
        return subprocess.run(
            self.line(*words),
            env=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    def start(self, *words, env=None, **options):
        """Call it and go on; its output is read line by line."""
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(self.line(*words), env={**self.environ, **(env or {})}, text=True, **given)
        self.started.append(process)
        return process

    def run(self, memory, *command, options=(), **started):
        """`cotenant run` in the background."""
        return self.start("run", "--gpu-memory", memory, *options, "--", *command, **started)

    def holder(self, memory, *words, options=(), **started):
        """A command that allocates as told, says `ready`, and holds it until its input ends."""
        return self.run(memory, sys.executable, PROGRAM, *words, options=options, **started)

    def listing(self, what):
        told = self(what, "-o", "json")
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    @property
    def cards(self):
        return StandIn(self.home.standin)

    def rows(self):
        """What is charged or waits, straight from the file; nothing if it has not been made yet."""
        if not self.home.ledger.exists():
            return []
        with contextlib.closing(sqlite3.connect(self.home.ledger, timeout=10)) as ledger:
            if not ledger.execute("PRAGMA user_version").fetchone()[0]:
                return []
            return [json.loads(text) for (text,) in ledger.execute("SELECT record FROM jobs ORDER BY since")]

    def charged(self):
        return sum(share["memory"] for row in self.rows() for share in row["shares"])

    def settle(self):
        """Whoever comes next reaps."""
        assert self("ps").returncode == 0

    def end(self):
        with contextlib.suppress(sqlite3.Error):
            for row in self.rows():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(row["process"]["pid"], signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


@pytest.fixture
def simulate(tmp_path):
    """Makes a machine of simulated cards; all that ran on it is ended afterwards."""
    made = []

    def make(spec="2x16GiB", folder="home"):
        machine = Simulated(tmp_path / folder, spec)
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.end()
        subprocess.run(["rm", "-rf", machine.home.runtime.parent.parent], check=False)


@pytest.fixture
def machine(simulate):
    return simulate()


@pytest.fixture
def until():
    """Waits for a condition; what it last gave is returned."""

    def wait(condition, seconds=15.0):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, "it did not come about in time"
            time.sleep(0.02)
        return found

    return wait


class OtherUser:
    """Another user of the same machine, whose commands use the same folder."""

    def __init__(self, machine):
        self._machine = machine
        self._as = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def __call__(self, *words, env=None):
        given = {**self._machine.environ, **(env or {})}
        return subprocess.run(
            self.line(*words), env=given, capture_output=True, text=True, check=False, timeout=60
        )

    def line(self, *words):
        return [*self._as, *self._machine.line(*words)]

    def start(self, *words):
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self.line(*words), env=self._machine.environ, text=True, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._machine.started.append(process)
        return process


@pytest.fixture
def shared(simulate):
    """A machine whose folder all users share, as `cotenant setup` makes it, and another user on it.

    The folder is not in pytest's own: each pytest that starts on this machine closes that one to other users.
    """
    if os.getuid() != 0:
        pytest.skip("only root may become another user")
    with tempfile.TemporaryDirectory(prefix="cotenant-shared-") as base:
        os.chmod(base, 0o755)
        home_for_all = Path(base) / "home"
        subprocess.run(
            [sys.executable, "-m", "cotenant.cli.main", "setup", "--folder", home_for_all],
            capture_output=True,
            check=True,
        )
        machine = simulate("1x16GiB", home_for_all)
        yield machine, OtherUser(machine)
        machine.end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")

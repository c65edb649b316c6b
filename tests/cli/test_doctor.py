"""`cotenant doctor` on simulated cards with real commands on them: what it prints, and how it exits."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import warm

from cotenant.demo import worker
from cotenant.hardware import libraries
from cotenant.hardware.standin.driver import StandIn
from cotenant.local import home


class Machine:
    """`cotenant` on two cards of 16 GiB, with a home of its own."""

    def __init__(self, base):
        self.environ = {**os.environ, "COTENANT_HOME": str(base), "COTENANT_SIMULATE": "2x16GiB"}
        self.home = home.prepare(base, "2x16GiB")
        self.started = []

    def line(self, *words):
        return [sys.executable, "-m", "cotenant.cli.main", *map(str, words)]

    def __call__(self, *words, **environ):
        return warm.run(words, env={**self.environ, **environ})

    def start(self, *words):
        """Start it; it is there when it has said a word. Returns the runner and the command's pid."""
        process = subprocess.Popen(
            self.line(*words), env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process, json.loads(process.stdout.readline())["pid"]

    def run(self, memory, *options, prefix=()):
        return self.start(
            "run", "--gpu-memory", memory, *options, "--", *prefix, sys.executable, worker.__file__, "1Gi"
        )

    def doctor(self, *options):
        """Its exit code and what it found, by kind."""
        done = self("doctor", *options, "-o", "json")
        document = json.loads(done.stdout)
        assert document["left"] == sum(not each["fixed"] for each in document["findings"])
        assert done.returncode == (1 if document["left"] else 0)
        return done.returncode, {each["kind"]: each for each in document["findings"]}

    def end(self):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self.home.ledger)) as ledger,
        ):
            for (text,) in ledger.execute("SELECT record FROM jobs"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(json.loads(text)["process"]["pid"], signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path / "home")
    yield machine
    machine.end()
    subprocess.run(["rm", "-rf", machine.home.runtime.parent.parent], check=False)


def test_nothing_is_wrong(machine):
    assert machine.doctor() == (0, {})
    machine.run("4Gi")
    done = machine("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("nothing is wrong")
    assert "\x1b" not in done.stdout


def test_a_job_that_was_killed(machine):
    runner, pid = machine.run("4Gi", "--name", "train")
    os.kill(runner.pid, signal.SIGKILL)
    assert machine.doctor() == (0, {})
    os.kill(pid, signal.SIGKILL)
    told = machine("doctor")
    assert told.returncode == 1
    assert "warning dead-owner: train is charged with 4Gi, but none of its processes lives" in told.stdout
    assert "1 found, 1 left: `cotenant doctor --fix` repairs 1" in told.stdout
    fixed = machine("doctor", "--fix")
    assert fixed.returncode == 0
    assert "1 found, all fixed" in fixed.stdout
    assert machine.doctor("--fix") == (0, {})
    assert os.listdir(machine.home.slots) == []


def test_a_ledger_that_was_damaged_while_commands_run(machine):
    """They run on, and are charged again."""
    runner, _ = machine.run("4Gi", "--name", "train")
    for file in machine.home.folder.glob("ledger.sqlite3*"):
        file.write_bytes(b"damaged" * 1000)
    assert machine("ps").returncode == 1
    code, found = machine.doctor()
    assert (code, set(found)) == (1, {"ledger-damaged"})
    code, found = machine.doctor("--fix")
    assert (code, set(found)) == (0, {"ledger-damaged"})
    assert "1 running grant" in found["ledger-damaged"]["done"]
    assert machine.doctor() == (0, {})
    (grant,) = json.loads(machine("ps", "-o", "json").stdout)["grants"]
    assert (grant["name"], grant["limit"]) == ("train", 4 << 30)
    assert machine.home.ledger.with_name("ledger.sqlite3.damaged").read_bytes().startswith(b"damaged")
    runner.communicate("end\n")
    assert runner.returncode == 0


def test_who_uses_a_card_without_a_grant_and_who_slips_past_the_shim(machine):
    machine.run("4Gi", "--name", "train")
    _, stranger = machine.start("standin", "--", sys.executable, worker.__file__, "2Gi")
    machine.run("2Gi", "--name", "sly", prefix=("env", "-u", "LD_PRELOAD"))
    code, found = machine.doctor("--fix")
    assert code == 1
    assert set(found) == {"outside", "escaped"}
    assert f"pid {stranger} of " in found["outside"]["found"]
    assert "(2.2Gi)" in found["outside"]["found"]
    assert "of sly holds 1.2Gi" in found["escaped"]["found"]
    assert not found["outside"]["fixable"]


def test_a_card_that_fell_off_the_bus(machine):
    machine.run("4Gi", "--name", "train")
    cards = StandIn(machine.home.standin)
    lost = cards.cards()[1].uuid
    cards.fail(lost)
    code, found = machine.doctor()
    assert (code, set(found)) == (1, {"sick-card"})
    assert found["sick-card"]["target"] == lost
    cards.recover(lost)
    assert machine.doctor() == (0, {})


def test_what_is_missing_is_told_in_words(machine, tmp_path):
    """Without cards, without a folder, without the libraries: findings, never a traceback."""
    (tmp_path / "file").write_text("")
    done = machine("doctor", COTENANT_HOME=f"{tmp_path}/file/home")
    assert done.returncode == 1
    assert "error home-unusable" in done.stdout
    done = machine("doctor", COTENANT_SIMULATE="")
    if not Path("/proc/driver/nvidia/version").exists():
        assert done.returncode == 1
        assert "no-driver" in done.stdout
    assert "Traceback" not in done.stderr
    assert machine("doctor", COTENANT_SIMULATE="2xNothing").returncode == 2


def test_a_preload_that_is_in_the_way(machine):
    machine.environ["LD_PRELOAD"] = str(libraries.standin_cuda())
    code, found = machine.doctor()
    assert (code, set(found)) == (1, {"preload-conflict"})

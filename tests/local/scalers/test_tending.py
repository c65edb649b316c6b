"""Killed between any two steps, a `cotenant up` is followed by one that does neither too much nor too little."""

import asyncio
import subprocess
import sys

import pytest
import yaml
from local.scalers.conftest import WORKER, lives

from cotenant.cli.compose import machine_of
from cotenant.local import stop
from cotenant.local.scalers import tending
from cotenant.local.scalers.file import read_file
from cotenant.local.scalers.folder import ScalerFolder
from cotenant.local.scalers.readiness import Readiness
from cotenant.local.scalers.replicas import Live, Replica
from cotenant.local.scalers.scaler import Scaler
from cotenant.local.snapshot import living_jobs
from cotenant.signals.servers import Servers


class Killed(BaseException):
    """kill -9: nothing after it is done."""


@pytest.fixture
def declare(machine, monkeypatch, tmp_path, queue):
    """Makes the scaler of a process that has just started, for a workload of this command."""
    monkeypatch.setenv("COTENANT_HOME", str(machine.base))
    local = machine_of(machine.spec)
    folder = ScalerFolder(local.home)
    folder.create()

    def make(*command, **fields):
        spec = {
            "command": list(command) or [sys.executable, str(WORKER)],
            "gpuMemory": "1Gi",
            "replicas": {"max": 3},
            "backlog": {"queue": queue.spec},
            **fields,
        }
        (tmp_path / "w.yaml").write_text(yaml.safe_dump({"workloads": {"work": spec}}))
        (declared,) = read_file(tmp_path / "w.yaml")
        scaler = Scaler(local, folder, "work", said.append)
        asyncio.run(scaler.declare(declared, Servers()))
        scaler.look = lambda: scaler.tend(living_jobs(local))
        scaler.add = lambda: scaler._replicas.add(1, local.store.jobs())
        scaler.remove = lambda: scaler._replicas.remove(1, machine_jobs(local)[0], "enough")
        return scaler

    said = []
    yield make
    local.store.close()


def machine_jobs(local):
    return [job for job in local.store.jobs() if job.workload == "work"]


@pytest.fixture
def launches(monkeypatch):
    """Counts the `cotenant run` that were started."""
    started, real = [], subprocess.Popen

    def popen(*words, **options):
        process = real(*words, **options)
        started.append(process)
        return process

    monkeypatch.setattr(tending.subprocess, "Popen", popen)
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_killed_before_cotenant_run_is_started(machine, declare, launches, monkeypatch, until):
    first = declare("sleep", "60")
    with monkeypatch.context() as patched:
        patched.setattr(tending.subprocess, "Popen", kill)
        with pytest.raises(Killed):
            first.add()
    second = declare("sleep", "60")
    second.look()
    assert launches == [], "it may be about to ask for room"
    with monkeypatch.context() as patched:
        patched.setattr(tending, "LAUNCHING", 0.0)
        second.look()
    assert not machine.rows()
    until(lambda: second.look() or machine.rows())
    assert len(machine.rows()) == 1


def test_killed_after_cotenant_run_is_started(machine, declare, launches, monkeypatch, until):
    real = tending.subprocess.Popen

    def start_and_die(*words, **options):
        real(*words, **options)
        raise Killed

    first = declare("sleep", "60")
    with monkeypatch.context() as patched:
        patched.setattr(tending.subprocess, "Popen", start_and_die)
        with pytest.raises(Killed):
            first.add()
    second = declare("sleep", "60")
    until(lambda: second.look() or (machine.rows() and machine.rows()[0]["started"]))
    for _ in range(5):
        second.look()
    assert (len(launches), len(machine.rows())) == (1, 1)


@pytest.mark.parametrize("moment", ["before it is in the ledger", "before the signal"])
def test_killed_while_it_removes_a_replica(machine, declare, launches, monkeypatch, until, moment):
    first = declare("sleep", "60", terminationGracePeriod="1h")
    first.add()
    until(lambda: first.look() or (machine.rows() and machine.rows()[0]["started"]))
    with monkeypatch.context() as patched:
        patched.setattr(stop, "begin" if "ledger" in moment else "send_signal", kill)
        with pytest.raises(Killed):
            first.remove()
    assert machine.rows()
    second = declare("sleep", "60", terminationGracePeriod="1h")
    until(lambda: second.look() or not machine.rows())
    until(lambda: second.look() or not len(second._replicas))
    assert len(launches) == 1
    assert machine.listing("history")["ended"][0]["code"] == 143


def test_killed_while_it_replaces_one(machine, declare, launches, monkeypatch, until):
    first = declare("sleep", "60")
    first.add()
    until(lambda: first.look() or (machine.rows() and machine.rows()[0]["started"]))
    changed = declare("sleep", "61")
    with monkeypatch.context() as patched:
        patched.setattr(stop, "begin", kill)
        with pytest.raises(Killed):
            changed.look()
    last = declare("sleep", "61")
    until(lambda: last.look() or [row["command"] for row in machine.rows()] == [["sleep", "61"]])
    assert len(launches) == 2


def test_a_name_that_somebody_else_has_taken_is_left_to_them(machine, declare, launches, until):
    other = machine.run("1Gi", "cat", options=["--name", "work-1"], stdout=-3)
    until(lambda: machine.rows())
    scaler = declare("sleep", "60")
    scaler.add()
    until(lambda: scaler.look() or len(machine.rows()) == 2)
    assert sorted(row["name"] for row in machine.rows()) == ["work-1", "work-2"]
    assert other.poll() is None


def test_a_successor_knows_since_when_nobody_has_worked(declare, queue):
    """A queue with counters does not tell what is in flight: then it is the GPUs that say who is idle."""
    counters = {"path": "depth", "arrived": "in", "completed": "out"}
    queue.figures.update({"in": 7, "out": 7})
    backlog = {"queue": {"http": {"url": queue.spec["http"]["url"], **counters}}}

    async def poll(scaler):
        declared, servers = scaler.declared, Servers()
        await scaler.declare(None, servers)
        await scaler.declare(declared, servers)
        for _ in range(3):
            await scaler.poll()
            await asyncio.sleep(0.05)
        await scaler.close()
        await servers.close()
        return scaler._memory

    first = asyncio.run(poll(declare(backlog=backlog)))
    second = asyncio.run(poll(declare(backlog=backlog)))
    assert first.clock > first.busy_at
    assert second.clock > first.clock
    assert second.busy_at == first.busy_at


def test_a_ready_command_that_takes_too_long_is_ended_with_all_it_has_started(
    declare, tmp_path, monkeypatch, until
):
    probe = ["sh", "-c", f"sleep 300 & echo $! > {tmp_path}/pid; wait"]
    declared, readiness = declare("sleep", "60", ready={"command": probe}).declared, Readiness()
    live = Live(Replica(1, "", 0.0), None, None, used=False, now=0.0)
    assert not readiness.check(declared, live)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    child = int((tmp_path / "pid").read_text())
    assert lives(child)
    monkeypatch.setattr("cotenant.local.scalers.readiness.LONGEST", 0.0)
    assert not readiness.check(declared, live)
    readiness.forget(1)
    until(lambda: not lives(child))


def kill(*_words, **_options):
    raise Killed

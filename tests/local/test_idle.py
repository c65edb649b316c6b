"""Idle jobs are stopped, or shrink first, whoever was killed meanwhile."""

import json
import os
import re
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.demo import worker
from cotenant.local import idle
from cotenant.local.idle import Step, decide
from cotenant.local.job import IdleRule, Job, Stopping
from cotenant.local.processes import stat, title

PROGRAM = Path(__file__).with_name("program.py")
GIB = 1 << 30
IGNORES = (
    "import signal, sys; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); sys.stdin.read()"
)


@pytest.mark.parametrize(
    ("shrink", "idle", "since_shrunk", "step"),
    [
        (False, 59.9, None, Step.KEEP),
        (False, 60.0, None, Step.STOP),
        (True, 59.9, None, Step.KEEP),
        (True, 60.0, None, Step.SHRINK),
        (True, 70.0, 10.0, Step.KEEP),
        (True, 120.0, 60.0, Step.STOP),
        (True, 60.0, 500.0, Step.SHRINK),
        (True, 10.0, 500.0, Step.KEEP),
    ],
    ids=lambda value: str(value),
)
def test_it_shrinks_first_and_stops_after_the_same_time_once_more(shrink, idle, since_shrunk, step):
    assert decide(IdleRule(60.0, shrink), idle, since_shrunk) is step


def test_the_rule_and_a_stop_that_has_begun_are_in_the_jobs_record(make_job):
    job = make_job("a", idle=IdleRule(60.0, True), shrunk=5.0, stopping=Stopping(9.0, 10.0, "idle for 1m"))
    assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job


def test_a_job_that_ends_while_it_is_looked_at_is_looked_at_again_later(plain_machine, monkeypatch):
    def ended(*_):
        raise BadInput("nothing named 'a' runs or waits here")

    monkeypatch.setattr(idle, "_look", ended)
    assert idle.look(plain_machine, "a").pause == idle.MOST_BETWEEN


def test_a_record_of_a_former_version_has_no_rule(make_job):
    old = {
        key: value
        for key, value in make_job("a").to_json().items()
        if key not in ("idle", "shrunk", "stopping")
    }
    assert Job.from_json(old).idle is None


def test_an_idle_command_is_stopped_and_history_says_why(machine):
    command = [sys.executable, PROGRAM, 512, "ready", "hold"]
    began = time.monotonic()
    process = machine.run("4Gi", *command, options=["--idle-timeout", "1s", "--name", "notebook"])
    said = process.stderr.read()
    assert process.wait(30) == 124
    assert time.monotonic() - began >= 1.0
    assert re.search(
        r"cotenant: notebook is stopped: no launch and no allocation for 1s \(--idle-timeout\)", said
    )
    assert machine.rows() == []
    (ended,) = machine.listing("history")["ended"]
    assert (ended["code"], ended["stopped"]) == (143, "idle for 1s")
    assert "143 (idle for 1s)" in machine("history").stdout


def test_a_command_that_works_is_not_stopped(machine, until):
    process = machine.run(
        "2Gi", sys.executable, worker.__file__, "1Gi", options=["--idle-timeout", "4s", "--name", "busy"]
    )
    process.stdout.readline()
    time.sleep(6)
    assert process.poll() is None
    process.stdin.write("rest\n")
    process.stdin.flush()
    assert process.wait(30) == 124


def test_a_command_that_never_uses_its_gpu_is_idle_from_its_grant_on(machine):
    done = machine("run", "--gpu-memory", "1Gi", "--idle-timeout", "1s", "--", "sleep", "60")
    assert done.returncode == 124


def test_time_in_line_is_not_idle_time(machine, until):
    first = machine.start("run", "--whole", 2, "--", "cat", stdout=-3)
    until(lambda: machine.charged() > 0)
    second = machine.start("run", "--gpu-memory", "1Gi", "--idle-timeout", "2s", "--", "cat", stdout=-3)
    assert "1st in line" in second.stderr.readline()
    time.sleep(2.5)
    assert second.poll() is None
    first.stdin.close()
    assert "room after" in second.stderr.readline()
    time.sleep(1)
    assert second.poll() is None
    assert second.wait(30) == 124


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(machine, until):
    process = machine.run("1Gi", sys.executable, "-c", IGNORES, options=["--idle-timeout", "1s"])
    process.stdout.readline()
    until(lambda: machine.rows()[0]["stopping"])
    assert process.poll() is None
    change_row(machine, lambda row: row["stopping"].update(grace=0.5))
    assert process.wait(30) == 124
    assert machine.listing("history")["ended"][0]["code"] == 137


def test_with_idle_shrink_the_line_gets_what_is_not_in_use_at_once(simulate, until):
    machine = simulate("1x16GiB")
    first = machine.holder(
        "14Gi", 1024, "ready", "hold", options=["--idle-timeout", "2s", "--idle-shrink", "--name", "notebook"]
    )
    assert [first.stdout.readline() for _ in range(2)] == ["ok\n", "ready\n"]
    second = machine.holder("12Gi", 1024, "ready", "hold")
    assert second.stdout.readline() == "ok\n"
    assert first.poll() is None
    (row,) = [row for row in machine.rows() if row["name"] == "notebook"]
    assert GIB < sum(share["memory"] for share in row["shares"]) < 2 * GIB
    assert first.wait(30) == 124
    said = first.stderr.read()
    assert "its grant is 1.2Gi now, was 14Gi (--idle-shrink)" in said
    assert "notebook is stopped: no launch and no allocation for" in said


def test_on_several_gpus_the_fullest_one_counts(machine, until):
    process = machine.holder(
        "8Gi", 512, "hold", options=["--gpus", 2, "--idle-timeout", "1s", "--idle-shrink"]
    )
    process.stdout.readline()
    until(lambda: machine.rows()[0]["shrunk"])
    shares = machine.rows()[0]["shares"]
    assert [share["memory"] for share in shares] == [768 << 20] * 2


def test_the_rule_holds_when_its_runner_is_killed(machine, until):
    process = machine.holder(
        "4Gi", 512, "ready", "hold", options=["--idle-timeout", "2s", "--name", "orphan"]
    )
    process.stdout.readline()
    (row,) = machine.rows()
    process.kill()
    process.wait()
    assert machine.rows(), "the command runs on"
    until(lambda: not machine.rows())
    assert not alive(row["process"]["pid"])
    (ended,) = machine.listing("history")["ended"]
    assert (ended["name"], ended["code"]) == ("orphan", None)
    assert ended["stopped"].startswith("idle for")


def test_a_runner_killed_between_its_decision_and_the_signal_is_finished_for(machine, until):
    process = machine.run("1Gi", "cat", options=["--idle-timeout", "1h"], stdout=-3)
    until(lambda: machine.rows() and title(machine.rows()[0]["process"]["pid"]) == "cat")
    process.send_signal(signal.SIGSTOP)
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    change_row(
        machine, lambda row: row.update(stopping={"since": boot, "grace": 60.0, "reason": "idle for 1h"})
    )
    process.kill()
    until(lambda: not machine.rows())
    assert machine.listing("history")["ended"][0]["stopped"] == "idle for 1h"


def test_nothing_is_left_behind_by_a_command_that_ends_by_itself(machine, until):
    before = processes_of(machine)
    done = machine("run", "--gpu-memory", "1Gi", "--idle-timeout", "1h", "--", "true")
    assert done.returncode == 0
    until(lambda: processes_of(machine) == before)


def test_a_stop_by_hand_is_no_idle_stop(machine, until):
    process = machine.run("1Gi", "cat", options=["--idle-timeout", "1h", "--name", "mine"], stdout=-3)
    until(lambda: machine.rows() and machine.rows()[0]["started"])
    assert machine("stop", "mine").returncode == 0
    assert process.wait(30) == 143
    assert machine.listing("history")["ended"][0]["stopped"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--idle-shrink", "--gpu-memory", "1Gi"], "--idle-shrink: at which time? Add it"),
        (["--idle-timeout", "2", "--gpu-memory", "1Gi"], "--idle-timeout: '2' is not a duration"),
        (["--idle-timeout", "0s", "--gpu-memory", "1Gi"], "--idle-timeout: 0s is too short"),
        (["--idle-timeout", "1h", "--idle-shrink", "--whole", 1], "--idle-shrink: whole GPUs cannot shrink"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(machine, options, words):
    done = machine("run", *options, "--", "true")
    assert done.returncode == 2
    assert words in done.stderr
    assert machine.rows() == []


def test_inside_a_grant_the_outer_command_has_the_rule(machine):
    inner = machine.line("run", "--idle-timeout", "1h", "--", "true")
    done = machine("run", "--gpu-memory", "1Gi", "--name", "outer", "--", *inner)
    assert done.returncode == 2
    assert "--idle-timeout: this command is called in the grant of outer" in done.stderr


def alive(pid):
    found = stat(pid)
    return found is not None and not found.ended


def change_row(machine, change):
    with closing(sqlite3.connect(machine.home.ledger, timeout=10)) as ledger, ledger:
        (id, text), *_ = ledger.execute("SELECT id, record FROM jobs")
        row = json.loads(text)
        change(row)
        ledger.execute("UPDATE jobs SET record = ? WHERE id = ?", (json.dumps(row), id))


def processes_of(machine):
    """Processes with this machine's home in their environment."""
    mark = f"COTENANT_HOME={machine.base}".encode()
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{name}/environ").read_bytes():
                found.add(name)
        except OSError:
            continue
    return found

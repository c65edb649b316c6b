"""What is left to say of a job that has ended, whoever was killed."""

import json
import os
import re
import signal
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.cli.run import summary
from cotenant.hardware import slots
from cotenant.local import line, slot_folder
from cotenant.local.ended import LONGEST_COMMAND, EndedJob, EndedShare, end_of
from cotenant.local.store import ENDED, LedgerStore

PROGRAM = Path(__file__).with_name("program.py")
MIB, GIB = 1 << 20, 1 << 30


def said(process):
    return process.stdout.readline().strip()


@pytest.fixture
def ended():
    def make(id="a", peak=3 * GIB, **fields):
        given = {
            "name": "train",
            "user": "me",
            "command": ("python", "train.py"),
            "mode": "enforce",
            "enforcer": "shim",
            "whole": False,
            "shares": (EndedShare("GPU-0", 4 * GIB, peak),),
            "denied": 0,
            "over": 0,
            "ended": 1_700_000_000.0,
            "seconds": 2460.0,
            "code": 0,
        }
        return EndedJob(id=id, **{**given, **fields})

    return make


def test_the_exit_line_says_what_it_held_and_what_would_do(machine):
    run = [sys.executable, PROGRAM, 1024, 512]
    done = machine("run", "--gpu-memory", "4Gi", "--name", "train", "--", *run)
    assert re.fullmatch(r"cotenant: train: peak 1\.7Gi of 4Gi, \d+s; 2Gi would do\n", done.stderr), (
        done.stderr
    )


def test_what_would_do_does(machine):
    run = [sys.executable, PROGRAM, 1024, 512]
    machine("run", "--gpu-memory", "4Gi", "--enforce", "observe", "--name", "train", "--", *run)
    (job,) = machine.listing("history")["ended"]
    again = machine("run", "--gpu-memory", job["would_do"], "--", *run)
    assert again.stdout.split() == ["ok", "ok"]


@pytest.mark.parametrize("quiet", [True, False])
def test_a_command_that_used_no_gpu_ends_without_a_word(machine, quiet):
    done = machine("run", "--gpu-memory", "4Gi", *["-q"] * quiet, "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


def test_quiet_is_quiet(machine):
    done = machine("run", "-q", "--gpu-memory", "4Gi", "--", sys.executable, PROGRAM, 1024)
    assert (done.stdout, done.stderr) == ("ok\n", "")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"peak": 3200 * MIB, "denied": 2}, "peak 3.1Gi of 4Gi, 2 refused, 41m00s; 3.5Gi would do"),
        ({"peak": 4 * GIB - 1}, "peak 3.9Gi of 4Gi, 41m00s"),
        ({"peak": 6 * GIB, "over": 9}, "peak 6Gi of 4Gi, 9 let through, 41m00s; 7Gi would do"),
        ({"peak": GIB, "denied": 2, "code": 1}, "peak 1Gi of 4Gi, 2 refused, 41m00s; to see what it needs: --enforce observe"),
        ({"peak": 4 * GIB, "denied": 2}, "peak 4Gi of 4Gi, 2 refused, 41m00s; to see what it needs: --enforce observe"),
        ({"peak": GIB, "whole": True}, "peak 1Gi of 4Gi whole, 41m00s; 1152Mi would do"),
        ({"peak": GIB, "enforcer": "watch"}, "peak 1Gi of 4Gi, 41m00s"),
    ],
)  # fmt: skip
def test_the_words_of_the_exit_line(ended, fields, words):
    assert summary(ended(**fields)) == f"train: {words}"


def test_memory_over_several_gpus_is_suggested_by_the_fullest(ended):
    shares = (EndedShare("GPU-0", 4 * GIB, GIB), EndedShare("GPU-1", 4 * GIB, 2 * GIB))
    job = ended(shares=shares)
    assert (job.peak, job.limit) == (3 * GIB, 8 * GIB)
    assert job.would_do == 2 * ended(peak=2 * GIB).would_do


def test_history_lists_what_ended_the_last_first(machine):
    for name, code in (("first", 0), ("second", 3)):
        script = f"{sys.executable} {PROGRAM} 512; exit {code}"
        machine("run", "--gpu-memory", "2Gi", "--name", name, "--", "sh", "-c", script)
    machine("run", "--gpu-memory", "2Gi", "--name", "idle", "--", "true")
    listed = machine.listing("history")["ended"]
    assert [(job["name"], job["code"], job["limit"], job["peak"]) for job in listed] == [
        ("idle", 0, 2 * GIB, 0),
        ("second", 3, 2 * GIB, 768 * MIB),
        ("first", 0, 2 * GIB, 768 * MIB),
    ]
    assert all(job["seconds"] >= 0 and job["ended"] > 1_600_000_000 for job in listed)
    table = machine("history").stdout.splitlines()
    assert table[0].split()[:4] == ["ENDED", "NAME", "USER", "LIMIT"]
    assert "second" in table[2]
    assert "768Mi" in table[2]
    only = json.loads(machine("history", "first", "-o", "json").stdout)["ended"]
    assert [job["name"] for job in only] == ["first"]
    assert len(machine("history", "-n", "1").stdout.splitlines()) == 2
    assert machine("history", "nobody").stdout == "nothing named nobody has ended\n"


def test_an_empty_history(machine):
    assert machine("history").stdout == "nothing has ended yet\n"


def test_a_killed_runner_takes_nothing_with_it(machine, until):
    """The slot has counted the peak; the next command of Cotenant records it."""
    process = machine.holder("2Gi", 512, "ready", "hold", options=["--name", "train"])
    assert [said(process), said(process)] == ["ok", "ready"]
    (row,) = machine.rows()
    process.kill()
    process.wait()
    assert machine.listing("history")["ended"] == []
    os.kill(row["process"]["pid"], signal.SIGKILL)
    (job,) = until(lambda: machine.listing("history")["ended"])
    assert (job["name"], job["peak"], job["code"]) == ("train", 768 * MIB, None)
    assert "train" in machine("history").stdout


def test_the_exit_code_is_known_also_if_another_command_saw_the_end_first(plain_machine, make_job, dead):
    job = make_job("a", slot=plain_machine.home.slots / "a", process=dead, started=True)
    job = line.join(plain_machine, job, wait=False, rename=False).job
    slot_folder.make(plain_machine, job)
    line.release_ended(plain_machine)
    assert [each.code for each in plain_machine.store.ended()] == [None]
    assert line.finish(plain_machine, "a", 3).code == 3
    assert [each.code for each in plain_machine.store.ended()] == [3]


def test_a_slot_that_was_left_behind_is_not_told_twice(plain_machine, make_job, dead):
    """Killed after the commit, before the slot was removed."""
    job = make_job("a", slot=plain_machine.home.slots / "a", process=dead, started=True)
    job = line.join(plain_machine, job, wait=False, rename=False).job
    slot_folder.make(plain_machine, job)
    line.finish(plain_machine, "a", 3)
    slot_folder.make(plain_machine, job)
    line.release_ended(plain_machine)
    assert [each.code for each in plain_machine.store.ended()] == [3]
    assert not job.slot.exists()


def test_what_never_started_is_no_history(plain_machine, make_job, dead):
    line.join(plain_machine, make_job("a", process=dead), wait=False, rename=False)
    line.release_ended(plain_machine)
    assert plain_machine.store.ended() == []


def test_a_lost_ledger_does_not_lose_who_runs(machine):
    process = machine.holder("2Gi", 512, "ready", "hold", options=["--name", "train"])
    assert [said(process), said(process)] == ["ok", "ready"]
    for file in machine.home.folder.glob("ledger.sqlite3*"):
        file.unlink()
    process.stdin.close()
    assert process.wait(10) == 0
    (job,) = machine.listing("history")["ended"]
    assert (job["name"], job["peak"], job["code"]) == ("train", 768 * MIB, 0)


def test_it_is_bounded(plain_machine, ended):
    with plain_machine.store.change() as books:
        for at in range(ENDED + 50):
            books.keep_ended(ended(str(at)))
    kept = plain_machine.store.ended()
    assert (len(kept), kept[0].id, kept[-1].id) == (ENDED, str(ENDED + 49), "50")


def test_a_long_command_is_cut(make_job):
    job = make_job("a", command=("python", "-c", "x" * 10**6, "more"), started=True)
    kept = end_of(job, 0.0, 0.0)
    assert sum(map(len, kept.command)) <= LONGEST_COMMAND + 3
    assert kept.command[-1].endswith("...")
    assert EndedJob.from_json(json.loads(json.dumps(kept.to_json()))) == kept


def test_after_a_restart_of_the_machine_peak_and_time_are_not_known(plain_machine, make_job, dead):
    job = make_job("a", process=dead, started=True)
    line.join(plain_machine, job, wait=False, rename=False)
    line.release_ended(plain_machine)
    (kept,) = plain_machine.store.ended()
    assert (kept.peak, kept.seconds, kept.would_do) == (None, None, None)


def test_a_full_disk_still_gives_the_exit_line(plain_machine, make_job, ended):
    job = make_job("a", slot=plain_machine.home.slots / "a", started=True)
    job = replace(line.join(plain_machine, job, wait=False, rename=False).job, code=0)
    slot_folder.make(plain_machine, job)
    with open(job.slot / "usage", "r+b") as usage:
        usage.seek(slots._PEAK_AT)
        usage.write((3 * GIB).to_bytes(8, "little"))
    assert end_of(job, (job.granted or 0) + 60, 0.0).would_do == ended().would_do


def test_a_ledger_of_version_1_is_taken_over(plain_machine, make_job):
    """What runs stays charged; who waits keeps the place."""
    place = plain_machine.home
    with sqlite3.connect(place.ledger) as old:
        old.executescript("""
            PRAGMA journal_mode = WAL;
            CREATE TABLE jobs (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, waiting INTEGER NOT NULL,
                               since REAL NOT NULL, record TEXT NOT NULL);
            CREATE INDEX line ON jobs (since, id) WHERE waiting;
            CREATE TABLE cards (uuid TEXT PRIMARY KEY, record TEXT NOT NULL);
            CREATE TABLE history (number INTEGER PRIMARY KEY AUTOINCREMENT, demand TEXT NOT NULL);
            PRAGMA user_version = 1;
        """)
        for id in ("a", "b"):
            record = make_job(id, user="ann").to_json()
            for name in ("priority", "started", "code"):
                del record[name]
            old.execute(
                "INSERT INTO jobs VALUES (?, ?, 1, ?, ?)", (id, id, record["since"], json.dumps(record))
            )
    old.close()
    store = LedgerStore(place)
    jobs = {job.id: job for job in store.jobs()}
    assert {id: job.user for id, job in jobs.items()} == {"a": "ann", "b": "ann"}
    assert store.ahead_of(jobs["b"]) == (1, jobs["a"])
    with store.change() as books:
        books.remember(jobs["a"].demand, "ann")
    assert list(store.turns()) == ["ann"]
    store.close()

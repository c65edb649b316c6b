"""`cotenant up` sizes real processes by a queue: to zero and back, whoever is killed meanwhile."""

import os
import random
import signal
import sys
import time

import pytest
import yaml
from local.scalers.conftest import WORKER, lives


def test_a_message_wakes_a_replica_and_idleness_releases_its_gpu(workloads, until):
    workloads.up(work=workloads.workload(scaleDownThreshold="2s"))
    assert (workloads.scaler()["state"], workloads.scaler()["replicas"]) == ("Idle", 0)
    assert workloads.replicas() == []
    workloads.queue.figures["depth"] = 1
    until(lambda: workloads.scaler()["ready"] == 1)
    assert [row["name"] for row in workloads.replicas()] == ["work-1"]
    workloads.queue.figures["depth"] = 0
    until(lambda: not workloads.machine.rows())
    assert workloads.scaler()["state"] == "Idle"
    ended = workloads.machine.listing("history")["ended"][0]
    assert ended["name"] == "work-1"
    assert ended["stopped"].startswith("cotenant up, Idle: idle for")


def test_work_in_flight_is_never_cut_off_by_the_threshold(workloads, until):
    workloads.queue.figures.update(depth=1)
    workloads.up(work=workloads.workload(scaleDownThreshold="1s"))
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.queue.figures.update(depth=0, working=1)
    time.sleep(4)
    assert workloads.scaler()["ready"] == 1


def test_it_gives_its_card_to_somebody_in_line_long_before_its_own_threshold(workloads, until):
    workloads.queue.figures["depth"] = 1
    fields = {"scaleDownThreshold": "1h", "scaleDownThresholdWhenOthersWait": "1s"}
    workloads.up(work=workloads.workload(**fields))
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.queue.figures["depth"] = 0
    time.sleep(2)
    assert workloads.replicas(), "nobody wants its card"
    other = workloads.machine.start("run", "--whole", 2, "--", "cat", stdout=-3)
    assert "1st in line" in other.stderr.readline()
    assert "room after" in other.stderr.readline()
    assert workloads.replicas() == []
    assert "while others wait" in workloads.log()


def test_a_line_that_it_cannot_help_does_not_release_it(workloads, until):
    """Another holds what the first in line needs: this workload's card alone would let nobody start."""
    first = workloads.machine.run("1Gi", "cat", options=["--gpu", 0], stdout=-3)
    until(lambda: workloads.machine.rows() and workloads.machine.rows()[0]["started"])
    workloads.queue.figures["depth"] = 1
    fields = {"scaleDownThreshold": "1h", "scaleDownThresholdWhenOthersWait": "1s", "gpu": ["1"]}
    workloads.up(work=workloads.workload(**fields))
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.queue.figures["depth"] = 0
    waiting = workloads.machine.start("run", "--whole", 2, "--", "cat", stdout=-3)
    assert "in line" in waiting.stderr.readline()
    time.sleep(3)
    assert workloads.replicas()
    first.stdin.close()
    assert "room after" in waiting.stderr.readline()


def test_a_wake_on_a_full_machine_waits_in_line(workloads, until):
    other = workloads.machine.start("run", "--whole", 2, "--", "cat", stdout=-3)
    until(lambda: workloads.machine.rows() and workloads.machine.rows()[0]["started"])
    workloads.queue.figures["depth"] = 20
    workloads.up(work=workloads.workload())
    until(lambda: "work-1 is 1st in line" in workloads.scaler()["reason"])
    assert workloads.scaler()["state"] == "WaitingForGpu"
    time.sleep(1)
    assert len(workloads.replicas()) == 1, "one in line is enough"
    other.stdin.close()
    until(lambda: workloads.scaler()["ready"] >= 1)


def test_more_messages_bring_more_replicas_up_to_the_maximum(workloads, until):
    workloads.queue.figures["depth"] = 500
    workloads.up(work=workloads.workload())
    until(lambda: workloads.scaler()["ready"] == 3)
    time.sleep(1)
    assert len(workloads.replicas()) == 3
    assert until(lambda: workloads.scaler()["state"] in ("AtMaximum", "Stalled"))


def test_after_kill_9_it_goes_on_without_a_restart_a_wake_or_a_new_timer(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload(scaleDownThreshold="1h"))
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.queue.figures["depth"] = 0
    until(lambda: workloads.scaler()["state"] == "Active" and workloads.scaler()["backlog"] == 0)
    time.sleep(1)
    workloads.kill()
    before, pids = workloads.folder.record("work"), workloads.pids()
    assert workloads.scaler()["ready"] == 1
    workloads.up()
    polled = workloads.folder.record("work")["status"]["polled"]
    until(lambda: workloads.folder.record("work")["status"]["polled"] > polled)
    after = workloads.folder.record("work")
    assert workloads.pids() == pids
    assert all(map(lives, pids.values()))
    assert after["memory"]["busyAt"] == before["memory"]["busyAt"]
    assert after["memory"]["clock"] > before["memory"]["clock"]
    assert after["status"]["since"] == before["status"]["since"]


def test_at_zero_kill_9_wakes_nothing(workloads, until):
    workloads.up(work=workloads.workload(scaleDownThreshold="1s"))
    for _ in range(3):
        workloads.kill()
        workloads.up()
    time.sleep(1)
    assert workloads.replicas() == []
    assert workloads.machine.listing("history")["ended"] == []


def test_killed_at_any_moment_of_a_wake_there_is_never_a_replica_too_many(workloads, until):
    chance = random.Random(7)
    workloads.queue.figures["depth"] = 40
    spec = workloads.workload(replicas={"max": 2})
    workloads.up(work=spec)
    for _ in range(6):
        time.sleep(chance.uniform(0.0, 0.6))
        workloads.kill()
        assert len(workloads.replicas()) <= 2
        workloads.up()
    until(lambda: workloads.scaler()["ready"] == 2)
    assert sorted(workloads.pids()) == ["work-1", "work-2"]
    ended = workloads.machine.listing("history")["ended"]
    assert ended == [], "none was started twice or stopped"


def test_a_replica_is_found_again_without_its_record(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload(scaleDownThreshold="1h"))
    until(lambda: workloads.scaler()["ready"] == 1)
    pids = workloads.pids()
    workloads.kill()
    (workloads.folder.path / "work.json").write_text("{damaged")
    workloads.up()
    until(lambda: workloads.scaler()["ready"] == 1)
    assert workloads.pids() == pids


def test_a_command_that_fails_is_started_again_with_pauses(workloads, until):
    workloads.queue.figures["depth"] = 5
    command = ["sh", "-c", "echo no such model >&2; exit 3"]
    workloads.up(work=workloads.workload(*command))
    found = until(lambda: (each := workloads.scaler())["reason"].count("no such model") and each)
    assert "work-1 ended with 3 (no such model)" in found["reason"]
    until(lambda: "it starts again in 10s (start 3)" in workloads.log())
    time.sleep(2)
    assert len(workloads.machine.listing("history")["ended"]) == 2
    assert workloads.replicas() == []
    assert workloads.scaler()["replicas"] == 1, "it counts as one that starts"


def test_a_command_that_cannot_be_started_is_reported_with_the_reason(workloads, until):
    program = workloads.file.parent / "gone"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    workloads.write(work=workloads.workload(str(program)))
    workloads.up()
    program.unlink()
    workloads.queue.figures["depth"] = 1
    until(lambda: "ended with 127" in workloads.scaler()["reason"])
    assert "was not found" in workloads.scaler()["reason"]


def test_the_first_failure_after_a_while_is_restarted_at_once(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload())
    until(lambda: workloads.scaler()["ready"] == 1)
    pids = workloads.pids()
    os.kill(pids["work-1"], signal.SIGKILL)
    until(lambda: workloads.pids() not in ({}, pids) and workloads.scaler()["ready"] == 1)
    assert "work-1: ended with 137" in workloads.log()


def test_an_unreachable_queue_keeps_what_runs_and_says_why(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload(scaleDownThreshold="1s"))
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.queue.close()
    found = until(lambda: (each := workloads.scaler())["state"] == "NoMetric" and each)
    assert f"127.0.0.1:{workloads.queue.port}" in found["reason"]
    time.sleep(2)
    assert workloads.replicas()


def test_ready_after_a_time(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload("sleep", "60", ready={"after": "1s"}))
    until(lambda: workloads.replicas())
    until(lambda: workloads.scaler()["ready"] == 1)
    assert "work-1: ready after" in workloads.log()


def test_ready_by_a_command_that_knows_its_replica(workloads, until, tmp_path):
    workloads.queue.figures["depth"] = 1
    probe = ["sh", "-c", "test -e ready-$COTENANT_REPLICA-$MODEL"]
    workloads.up(work=workloads.workload("sleep", "60", ready={"command": probe}, environment={"MODEL": "x"}))
    until(lambda: workloads.replicas())
    time.sleep(2)
    assert workloads.scaler()["ready"] == 0
    (tmp_path / "ready-1-x").touch()
    until(lambda: workloads.scaler()["ready"] == 1)


def test_a_stubborn_replica_is_killed_after_its_grace_period_also_by_a_successor(workloads, until):
    workloads.queue.figures["depth"] = 1
    spec = workloads.workload(
        sys.executable, str(WORKER), "stubborn", scaleDownThreshold="1s", terminationGracePeriod="3s"
    )
    workloads.up(work=spec)
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.queue.figures["depth"] = 0
    until(lambda: (rows := workloads.replicas()) and rows[0]["stopping"])
    workloads.kill()
    (pid,) = workloads.pids().values()
    assert lives(pid)
    workloads.up()
    until(lambda: not workloads.machine.rows())
    assert not lives(pid)
    assert workloads.machine.listing("history")["ended"][0]["code"] in (None, 137)


def test_a_changed_file_is_applied_to_what_runs(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload(sys.executable, str(WORKER), "one"), other=workloads.workload())
    until(lambda: workloads.scaler()["ready"] == workloads.scaler("other")["ready"] == 1)
    kept = workloads.pids("work")
    done = workloads.up(work=workloads.workload(sys.executable, str(WORKER), "one", replicas={"max": 9}))
    assert "other is no longer in" in done.stdout
    assert f"applied by process {workloads.pid()}" in done.stdout
    until(lambda: not workloads.replicas("other"))
    assert workloads.pids("work") == kept, "limits change without a restart"
    workloads.up(work=workloads.workload(sys.executable, str(WORKER), "two"))
    until(lambda: (now := workloads.pids("work")) and now != kept and workloads.scaler()["ready"] == 1)
    assert workloads.folder.log("work-1").read_text().splitlines()[-1] == "loaded two"


def test_down_stops_all_of_it_and_up_ends(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload(), other=workloads.workload())
    until(lambda: workloads.scaler()["ready"] == workloads.scaler("other")["ready"] == 1)
    done = workloads.machine("down")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["down", "down", "other:", "work:"])
    assert workloads.machine.rows() == []
    until(lambda: workloads.pid() is None)
    assert workloads.machine("scalers").stdout == "nothing is up\n"
    assert workloads.machine("down").stdout == "nothing is up\n"


def test_down_of_one_works_without_a_process_that_scales(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.up(work=workloads.workload(), other=workloads.workload())
    until(lambda: workloads.scaler()["ready"] == workloads.scaler("other")["ready"] == 1)
    workloads.kill()
    assert "nobody scales them now" in workloads.machine("scalers").stdout
    assert workloads.machine("down", "other").returncode == 0
    assert not workloads.replicas("other")
    assert workloads.replicas("work"), "what is not named runs on"
    unknown = workloads.machine("down", "nothing")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "cotenant: no workload 'nothing' is up: there is work\n",
    )


def test_up_waits_for_a_down_that_takes_on_nothing_else(workloads, until, tmp_path):
    workloads.queue.figures["depth"] = 1
    spec = workloads.workload(sys.executable, str(WORKER), "stubborn", terminationGracePeriod="4s")
    workloads.up(work=spec)
    until(lambda: workloads.scaler()["ready"] == 1)
    workloads.kill()
    down = workloads.machine.start("down", "work")
    until(workloads.folder.only_stops)
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({"workloads": {"other": workloads.workload()}}))
    done = workloads.machine("up", "-d", other)
    assert f"waiting for process {down.pid}" in done.stdout
    assert down.wait() == 0
    assert workloads.scaler("other")["state"] != "Starting"
    assert workloads.pid() is not None


def test_observe_decides_and_changes_nothing(workloads, until):
    workloads.queue.figures["depth"] = 5
    workloads.up(work=workloads.workload(mode="observe"))
    until(lambda: workloads.scaler()["desired"] >= 1)
    time.sleep(1)
    assert workloads.replicas() == []


def test_in_the_foreground_ctrl_c_ends_the_scaling_and_replicas_run_on(workloads, until):
    workloads.queue.figures["depth"] = 1
    workloads.write(work=workloads.workload())
    process = workloads.machine.start("up", workloads.file)
    until(lambda: workloads.folder.record("work").get("status", {}).get("ready") == 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    said = process.stdout.read()
    assert "work: 0 -> 1, Waking" in said
    assert "Replicas run on" in said
    assert lives(workloads.pids()["work-1"])


def test_a_minimum_is_kept_without_any_message(workloads, until):
    workloads.up(work=workloads.workload(replicas={"min": 1, "max": 2}, scaleDownThreshold="1s"))
    until(lambda: workloads.scaler()["ready"] == 1)
    time.sleep(3)
    assert len(workloads.replicas()) == 1


def test_a_workload_of_another_file_keeps_its_name(workloads, tmp_path):
    workloads.up(work=workloads.workload())
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({"workloads": {"work": workloads.workload()}}))
    done = workloads.machine("up", other)
    assert done.returncode == 2
    assert f"a workload of this name is up already, from {workloads.file}" in done.stderr


def test_what_can_never_run_here_is_refused_before_anything_starts(workloads):
    workloads.write(
        big=workloads.workload(gpuMemory="40Gi"),
        gone=workloads.workload("no-such-program"),
        lost=workloads.workload(workingDirectory="nowhere"),
        mute=workloads.workload(ready={"command": ["./no-such-probe"]}),
    )
    done = workloads.machine("up", workloads.file)
    assert done.returncode == 2
    for words in (
        "workloads.big.gpuMemory: 40Gi asked, the largest GPU has 16Gi",
        "workloads.gone.command: no-such-program was not found in PATH",
        "workloads.lost.workingDirectory:",
        "workloads.mute.ready.command:",
    ):
        assert words in done.stderr
    assert workloads.machine("scalers").stdout == "nothing is up\n"


def test_inside_a_grant_it_is_refused(workloads):
    workloads.write(work=workloads.workload())
    inner = workloads.machine.line("up", workloads.file)
    done = workloads.machine("run", "--gpu-memory", "1Gi", "--name", "outer", "--", *inner)
    assert done.returncode == 2
    assert "called in the grant of outer" in done.stderr


@pytest.mark.parametrize("command", [["up", "-d"], ["scalers"], ["down"]], ids=" ".join)
def test_without_the_extra_it_says_what_to_install(workloads, command, tmp_path):
    (tmp_path / "msgspec.py").write_text("raise ModuleNotFoundError('no', name='msgspec')")
    workloads.write(work=workloads.workload())
    words = [*command, workloads.file] if command[0] == "up" else command
    done = workloads.machine(*words, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "msgspec is not installed" in done.stderr
    assert "pip install 'cotenant[scaling]'" in done.stderr

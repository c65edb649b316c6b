"""Ending a job: whose it may be, and that it needs no free disk."""

import os
import subprocess

import pytest

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a file system")


@needs_root
@pytest.mark.parametrize("words", ["stop train", "resize train 2Gi", "resize train +1Gi", "resize train 50%"])
def test_a_job_of_another_user_is_neither_stopped_nor_resized(shared, words):
    machine, other = shared
    mine = machine.holder("4Gi", "ready", "hold", options=["--name", "train"])
    assert mine.stdout.readline() == "ready\n"
    (before,) = machine.rows()
    refused = other(*words.split())
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"train belongs to root: only root can {words.split()[0]} it" in refused.stderr
    assert machine.rows() == [before]
    assert mine.poll() is None


@needs_root
def test_a_waiting_job_of_another_user_is_not_stopped(shared):
    machine, other = shared
    assert machine.holder("13Gi", "ready", "hold").stdout.readline() == "ready\n"
    waiting = machine.run("4Gi", "true", options=["--name", "later"])
    assert "in line" in waiting.stderr.readline()
    refused = other("stop", "later")
    assert refused.returncode == 1
    assert "belongs to root" in refused.stderr
    assert waiting.poll() is None


@needs_root
def test_a_user_s_own_job_and_every_job_for_root(shared):
    machine, other = shared
    theirs = other.start("run", "--gpu-memory", "4Gi", "--name", "train", "--", "sh", "-c", "echo on; cat")
    assert theirs.stdout.readline() == "on\n"
    assert other("resize", "train", "5Gi").stdout == "train: 4Gi -> 5Gi\n"
    assert machine("resize", "train", "6Gi").stdout == "train: 5Gi -> 6Gi\n"
    assert other("stop", "train").stdout == "train has ended\n"


def full(folder, *lines):
    """A script in a mount namespace of its own, in which the ledger's folder is a small file system."""
    return "\n".join(
        [
            f"mount -t tmpfs -o size=512k none {folder}",
            f"export COTENANT_HOME={folder}",
            *lines,
        ]
    )


def in_namespace(machine, script):
    return subprocess.run(
        ["unshare", "-m", "bash", "-c", script, "bash", *machine.line()],
        env=machine.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


START = """
    "$@" run --gpu-memory 4Gi --name train -- sh -c 'echo on; exec sleep 60' >{folder}/said 2>/dev/null &
    until grep -q on {folder}/said 2>/dev/null; do sleep 0.05; done
    cat /dev/zero >{folder}/fill 2>/dev/null
"""


@needs_root
def test_stop_on_a_full_disk_ends_the_job_and_says_so(machine, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    done = in_namespace(
        machine,
        full(
            folder,
            START.format(folder=folder),
            '"$@" stop train; echo "exit $?"',
            'wait $!; echo "runner $?"',
            '"$@" ps',
            f"rm {folder}/fill",
            '"$@" run --whole 2 --no-wait -- true; echo "exit $?"',
        ),
    )
    assert done.stdout == "train has ended\nexit 0\nrunner 143\nnothing runs, nothing waits\nexit 0\n"
    assert "Nothing was changed" not in done.stderr
    assert "released by the next command" in done.stderr
    assert "Traceback" not in done.stderr


@needs_root
def test_resize_on_a_full_disk_leaves_limit_and_ledger_alike(machine, tmp_path):
    """To shrink, the limit is lowered before the ledger is written: it must come back."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = in_namespace(
        machine,
        full(
            folder,
            START.format(folder=folder),
            '"$@" resize train 2Gi; echo "exit $?"',
            f"rm {folder}/fill",
            '"$@" doctor -o json | grep -c limits-differ',
            '"$@" stop train --timeout 0s >/dev/null',
        ),
    )
    assert done.stdout == "exit 1\n0\n", done.stderr
    assert "disk full?" in done.stderr


def test_stop_finds_a_job_whose_ledger_is_damaged(machine):
    process = machine.holder("4Gi", "ready", "hold", options=["--name", "train"])
    assert process.stdout.readline() == "ready\n"
    for file in machine.home.folder.glob("ledger.sqlite3-*"):
        file.unlink()
    machine.home.ledger.write_bytes(b"damaged" * 1000)
    done = machine("stop", "train")
    assert (done.returncode, done.stdout) == (0, "train has ended\n")
    assert "is damaged" in done.stderr
    assert process.wait(10) == 143

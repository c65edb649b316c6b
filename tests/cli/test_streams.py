"""Output that cannot be written, streams that are closed, and readers that have ended."""

import os
import subprocess
import sys

import pytest

COTENANT = f"{sys.executable} -m cotenant.cli.main --simulate 1x16GiB"


@pytest.fixture
def shell(tmp_path):
    environ = {**os.environ, "COTENANT_HOME": str(tmp_path / "home")}

    def call(script):
        line = ["bash", "-c", script]
        done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert "Traceback" not in done.stderr, done.stderr
        assert "Exception" not in done.stderr, done.stderr
        return done

    return call


COMMANDS = [
    "gpus",
    "ps",
    "gpus -o json",
    "top -n 2 --interval 50ms",
    "--help",
    "run --help",
    "doctor",
    "--version",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_in_one_line(shell, command):
    done = shell(f"{COTENANT} {command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "cotenant: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("command", ["gpus", "top -n 1", "--help"])
def test_a_closed_output_is_said_in_one_line(shell, command):
    done = shell(f"{COTENANT} {command} >&-")
    assert done.returncode == 1
    assert done.stderr == "cotenant: the output could not be written: Bad file descriptor\n"


@pytest.mark.parametrize("command", ["gpus", "ps -o json", "top -n 20 --interval 50ms", "--help"])
def test_a_reader_that_has_ended_ends_it_quietly_as_by_sigpipe(shell, command):
    done = shell(f"{COTENANT} {command} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (141, "")


def test_messages_that_cannot_be_written_stop_nothing(shell):
    for where in ("2>&-", "2>/dev/full", "2> >(exec true)"):
        done = shell(f"{COTENANT} run --gpu-memory 1Mi --enforce warn -- sh -c 'exit 7' {where}")
        assert done.returncode == 7, where
        assert shell(f"{COTENANT} stop ghost {where}").returncode == 2


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_command_runs_with_closed_streams_and_finds_them_closed(shell, tmp_path, closed):
    """The number of a closed stream must not be given to a file of ours: the command would write into it."""
    script = "ls -l /proc/self/fd > {out}; echo noise; echo noise >&2".format(out=tmp_path / "open")
    done = shell(f"{COTENANT} run --gpu-memory 1Gi -- sh -c '{script}' {closed}; true")
    assert done.returncode == 0
    opened = (tmp_path / "open").read_text()
    assert "ledger" not in opened
    assert "/lock" not in opened
    assert shell(f"{COTENANT} ps").stdout == "nothing runs, nothing waits\n"


def test_a_name_that_the_terminal_cannot_show_is_replaced(shell):
    script = f"{COTENANT} run --gpu-memory 1Gi -- sh -c 'PYTHONIOENCODING=ascii {COTENANT} ps' é模"
    done = shell(script)
    assert done.returncode == 0, done.stderr
    assert "é" not in done.stdout

"""`cotenant top`: plain text and JSON without a terminal, a live view on one, and a terminal as it was afterwards."""

import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from cotenant.demo import worker
from cotenant.hardware.standin import driver as standin
from cotenant.local import home

TOP = [sys.executable, "-m", "cotenant.cli.main", "top"]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
CTRL_C = b"\x03"


@pytest.fixture
def environ(tmp_path):
    yield {**os.environ, "COTENANT_HOME": str(tmp_path), "COTENANT_SIMULATE": "2x16GiB", "TERM": "xterm"}
    subprocess.run(["rm", "-rf", home.prepare(tmp_path).runtime], check=False)


@pytest.fixture
def jobs(environ):
    """One that runs and was refused something, one more, and one that waits; a launch takes 10 ms."""
    place = home.prepare(Path(environ["COTENANT_HOME"]), "2x16GiB").standin
    standin.create(place, standin.parse_spec("2x16GiB"), launch_seconds=0.01)
    line = [sys.executable, "-m", "cotenant.cli.main", "run", "--gpu-memory"]
    started = []
    for name, size in (("train", "12Gi"), ("serve", "12Gi"), ("later", "8Gi")):
        command = [*line, size, "--name", name, "--", sys.executable, worker.__file__, "2Gi"]
        process = subprocess.Popen(
            command,
            env=environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        assert (process.stderr if name == "later" else process.stdout).readline()
    started[0].stdin.write("take 11Gi\n")
    started[0].stdin.flush()
    assert "OUT_OF_MEMORY" in started[0].stdout.readline()
    yield started
    for process in started:
        process.terminate()
        process.communicate()


def top(environ, *options):
    return subprocess.run(
        [*TOP, *options], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_without_a_terminal_it_is_one_plain_look(environ, jobs):
    done = top(environ)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.count("cotenant top") == 1
    assert "simulated 2x16GiB  8Gi of 32Gi free  2 running  1 waiting" in done.stdout
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["train"][2] == "12Gi"
    assert rows["train"][4:6] == ["2.2Gi", "2.2Gi"]
    assert rows["train"][7] == "1"
    assert rows["1st"][1] == "later"


def test_as_many_looks_as_asked_for(environ):
    done = top(environ, "-n", "3", "--interval", "50ms")
    assert done.returncode == 0
    assert done.stdout.count("cotenant top") == 3


def test_json_is_one_line_a_look(environ, jobs):
    time.sleep(1)  # so that the cards' last second was busy
    done = top(environ, "-o", "json", "-n", "2", "--interval", "100ms")
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) == 2
    for look in looks:
        assert [card["memory"] for card in look["gpus"]] == [16 << 30] * 2
        train = next(grant for grant in look["grants"] if grant["name"] == "train")
        assert train["limit"] == 12 << 30
        assert train["used"] == train["peak"] == (2 << 30) + (256 << 20)
        assert train["denied"] == 1
        assert train["idle_seconds"] < 3
        assert [waiting["name"] for waiting in look["line"]] == ["later"]
    busy = {grant["name"]: grant["utilization"] for grant in looks[-1]["grants"]}
    assert busy.keys() == {"train", "serve"}
    assert all(5 <= figure <= 60 for figure in busy.values())
    assert all(card["utilization"] >= 5 for card in looks[-1]["gpus"])


@pytest.mark.parametrize(
    "options", [("-n", "0"), ("--interval", "0s"), ("--interval", "2"), ("--interval", "soon"), ("-n", "x")]
)
def test_bad_input(environ, options):
    done = top(environ, *options)
    assert done.returncode == 2
    assert options[0].lstrip("-") in done.stderr or "iterations" in done.stderr


def test_on_a_terminal_some_looks_stay(environ, open_terminal):
    terminal = open_terminal([*TOP, "-n", "2", "--interval", "100ms"], environ)
    assert terminal.end() == 0
    assert ENTER not in terminal.seen
    assert terminal.seen.count(b"cotenant top") == 2


@pytest.fixture
def terminal(environ, open_terminal):
    return open_terminal([*TOP, "--interval", "200ms"], environ)


def test_a_live_view_that_ctrl_c_ends_quietly(terminal):
    terminal.until(ENTER)
    terminal.until(b"2x16GiB  32Gi of 32Gi free")
    os.write(terminal.ours, CTRL_C)
    assert terminal.process.wait(10) == 0
    terminal.until(LEAVE)
    after = terminal.seen.split(LEAVE, 1)[1]
    assert SHOW_CURSOR in terminal.seen.rsplit(ENTER, 1)[1]
    assert b"Traceback" not in after
    assert b"Abort" not in after
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_the_terminal_is_restored_when_it_is_terminated(terminal):
    terminal.until(b"GPU")
    terminal.process.terminate()
    assert terminal.process.wait(10) == 128 + signal.SIGTERM
    terminal.until(LEAVE)
    terminal.until(SHOW_CURSOR)


def test_the_view_goes_on_by_itself(terminal):
    terminal.until(b"GPU")
    end = time.monotonic() + 10
    while terminal.seen.count(b"cotenant top") < 3 and time.monotonic() < end:
        terminal.read(0.2)
    assert terminal.seen.count(b"cotenant top") >= 3


def test_q_quits_and_the_terminal_is_as_it_was(terminal):
    terminal.until(b"32Gi of 32Gi free")
    terminal.type(b"q")
    assert terminal.process.wait(10) == 0
    terminal.until(LEAVE)
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_keys_are_not_echoed(terminal):
    terminal.until(b"32Gi of 32Gi free")
    terminal.type(b"xyzzy\x1b[15~")
    shown = terminal.seen.count(b"cotenant top")
    while terminal.seen.count(b"cotenant top") < shown + 3:
        terminal.read(0.1)
    assert b"xyzzy" not in terminal.seen
    assert b"15~" not in terminal.seen
    assert terminal.process.poll() is None


def test_bars_are_drawn_in_the_terminals_own_encoding(environ, open_terminal):
    for encoding, sign in (("utf-8", "·"), ("ascii", ".")):
        terminal = open_terminal(TOP, {**environ, "PYTHONIOENCODING": encoding}, columns=140)
        terminal.until(b"q quit")
        assert sign * 24 in terminal.text()


@pytest.mark.parametrize("columns", [80, 60, 132])
def test_no_line_is_wider_than_the_terminal_and_the_first_columns_stay(environ, jobs, open_terminal, columns):
    terminal = open_terminal(TOP, environ, columns=columns)
    terminal.until(b"q quit")
    lines = terminal.text().splitlines()
    assert max(map(len, lines)) <= columns
    heads = [line.split() for line in lines if line.split()[:1] in (["GPU"], ["NAME"], ["LINE"])]
    assert [head[0] for head in heads] == ["GPU", "NAME", "LINE"]
    assert {"MEMORY", "FREE", "USED"} <= set(heads[0])
    assert {"GPU", "LIMIT", "USED"} <= set(heads[1])
    assert {"NAME", "WHY"} <= set(heads[2])
    left_out = {"BUSY", "PEAK", "COMMAND"} - {word for head in heads for word in head}
    said = terminal.text().partition("(no room for")[2].partition(")")[0]
    assert all(word in said for word in left_out), (left_out, said)


def test_a_resized_terminal_is_drawn_anew_at_once(environ, open_terminal):
    terminal = open_terminal([*TOP, "--interval", "60s"], environ, columns=140)
    terminal.until(b"q quit")
    assert b"OUTSIDE" in terminal.seen
    terminal.seen = b""
    terminal.resize(60)
    terminal.until(b"q quit")
    assert max(map(len, terminal.text().splitlines())) <= 60


def test_what_does_not_fit_is_scrolled_to(environ, open_terminal):
    terminal = open_terminal([*TOP, "--interval", "60s"], environ, lines=4)
    terminal.until(b"2 more below")
    terminal.seen = b""
    terminal.type(b"\x1b[B")
    terminal.until(b"above")
    assert "NVIDIA Stand-in 16GiB" in terminal.text()


def test_the_terminal_is_given_back_while_it_is_suspended(environ, open_terminal):
    """Under a shell, as job control needs one."""
    script = " ".join(TOP) + "; echo suspended; fg; echo over"
    terminal = open_terminal(["bash", "-m", "-i", "-c", script], environ)
    terminal.until(b"32Gi of 32Gi free")
    terminal.type(b"\x1a")
    terminal.until(b"suspended")
    assert LEAVE in terminal.seen
    terminal.until(ENTER, after=LEAVE)
    terminal.type(b"q")
    terminal.until(b"over")


def test_a_dumb_terminal_gets_one_look_without_a_control_character(environ, open_terminal):
    terminal = open_terminal(TOP, {**environ, "TERM": "dumb"}, columns=80)
    assert terminal.end() == 0
    assert terminal.seen.count(b"cotenant top") == 1
    assert b"\x1b" not in terminal.seen


def test_no_colour_where_nobody_wants_it(environ, jobs, open_terminal):
    for given, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
        terminal = open_terminal(TOP, {**environ, **given})
        terminal.until(b"q quit")
        assert (b"\x1b[3" in terminal.seen) == coloured

"""`cotenant demo`: the story happens, and it is told if it does not."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.demo import release
from cotenant.demo.stage import Broken, Stage, stage
from cotenant.demo.story import SPEC, Story
from cotenant.hardware.standin import driver as standin

DEMO = [sys.executable, "-m", "cotenant.cli.main", "demo"]


class Blank:
    """A page that nobody reads."""

    def heading(self, text):
        pass

    say = typed = heard = heading


@pytest.fixture
def environ(tmp_path):
    own = {name: value for name, value in os.environ.items() if not name.startswith("COTENANT_")}
    return {**own, "TMPDIR": str(tmp_path)}


def gone(folder):
    """Nobody works in the folder (killed processes take a moment)."""
    end = time.monotonic() + 5
    while any(_works_in(process, folder) for process in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _works_in(process, folder):
    try:
        return os.readlink(process / "cwd").startswith(str(folder))
    except OSError:
        return False


def test_every_part_happens(environ, tmp_path):
    began = time.monotonic()
    done = subprocess.run(DEMO, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 60
    assert "simulated" in done.stdout.splitlines()[0]
    assert "\x1b" not in done.stdout
    closing = done.stdout.split("What happened\n")[1].strip().splitlines()
    assert len([line for line in closing if line.endswith("yes")]) == 15
    parts = (
        "sharing",
        "a greedy one",
        "waiting in line",
        "resizing",
        "kill -9",
        "idleness",
        "everybody leaves",
    )
    for part in (*parts, "to zero and back"):
        assert any(line.startswith(part) for line in closing)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    assert re.search(r"10Gi asked, largest free room 4Gi on GPU 1: waiting, 1st in line", done.stdout)
    assert re.search(r"batch: 10Gi -> 14Gi", done.stdout)
    assert os.listdir(tmp_path) == []
    assert gone(tmp_path)


def test_a_limit_that_does_not_hold_is_told(monkeypatch):
    """The same commands, only watched: what the greedy one gets is seen by the cards' account."""
    run = Stage.run

    def observed(self, name, grant, hold, *options):
        return run(self, name, grant, hold, *options, "--enforce", "observe")

    monkeypatch.setattr(Stage, "run", observed)
    with stage(SPEC, Blank()) as made:
        story = Story(made)
        assert [check.happened for check in story._share()] == [True, False]  # nor does the card look smaller
        greedy, neighbours = story._be_greedy()
    assert not greedy.happened
    assert "success" in greedy.measured
    assert neighbours.happened


def test_a_story_that_breaks_off_is_no_success():
    with stage(SPEC, Blank()) as made:
        (made._folder / "worker.py").write_text("raise SystemExit('no card for me')")
        (check,) = Story(made).play()
    assert not check.happened
    assert "no card for me" in check.measured


def test_without_what_scaling_needs_its_part_is_left_out_and_said_so(monkeypatch):
    said = []

    class Page(Blank):
        def say(self, text):
            said.append(text)

    monkeypatch.setattr(release, "missing", lambda: ["msgspec"])
    with stage(SPEC, Page()) as made:
        assert list(Story(made)._release()) == []
    assert "pip install 'cotenant[scaling]'" in said[-1]


def test_replicas_do_not_outlive_a_demo_that_breaks_off():
    with stage(SPEC, Blank()) as made:
        part = release.release(made, (), "4Gi", "3Gi")
        assert next(part).happened
        assert made.listing("scalers")["scaled_by"]
        folder = made._folder
        part.close()
    assert gone(folder)
    assert not folder.exists()


def test_nothing_is_left_whatever_happens():
    def break_off(made):
        actor = made.run("train", "4Gi", "1Gi")
        actor.answer()
        assert made.held_by(actor)
        places.update(folder=made._folder, runtime=made.home.runtime)
        raise Broken("the lights go out")

    places = {}
    with pytest.raises(Broken, match="the lights"), stage(SPEC, Blank()) as made:
        break_off(made)
    assert not places["folder"].exists()
    assert not places["runtime"].exists()
    assert gone(places["folder"])


def test_cards_that_do_not_suit_the_story(environ):
    done = subprocess.run(
        [*DEMO, "--simulate", "2x4GiB"], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == BadInput.exit_code
    assert "two equal GPUs of 8Gi or more" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_on_a_terminal_it_leaves_nothing(environ, tmp_path, number):
    """Told where real cards are, too: here the stand-in plays them."""
    cards = tmp_path.with_name(f"{tmp_path.name}-cards")
    standin.create(cards, standin.parse_spec("1xT4"))
    environ = standin.environment(cards, environ)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        DEMO,
        env={**environ, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + 30
    while b"cotenant gpus" not in seen and time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            seen += os.read(ours, 65536)
    assert b"\x1b[" in seen  # colours, since this is a terminal
    assert b"This machine has 1 real GPU" in seen
    process.send_signal(number)
    while process.poll() is None and time.monotonic() < end:  # what it still says must not block it
        if select.select([ours], [], [], 0.1)[0]:
            try:
                os.read(ours, 65536)
            except OSError:
                break
    assert process.wait(10) == 128 + number
    os.close(ours)
    assert os.listdir(tmp_path) == []
    assert gone(tmp_path)

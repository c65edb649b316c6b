"""Death at any moment: what lives stays charged, what is dead is not, and nobody has to clean up."""

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")
GIB = 1 << 30


def said(process):
    return process.stdout.readline().strip()


def nothing_left(machine):
    machine.settle()
    return (
        machine.rows() == []
        and list(machine.home.slots.iterdir()) == []
        and all(card.used == 0 for card in machine.cards.cards())
    )


def command_of(machine, runner):
    """The recorded command, once it is recorded."""
    return next(
        (row["process"]["pid"] for row in machine.rows() if row["process"]["pid"] != runner.pid), None
    )


def test_the_command_killed(machine):
    process = machine.holder("2Gi", 512, "ready", "hold")
    assert [said(process), said(process)] == ["ok", "ready"]
    os.kill(command_of(machine, process), signal.SIGKILL)
    assert process.wait(10) == 137
    assert machine.rows() == []
    assert nothing_left(machine)


def test_the_runner_killed_leaves_the_room_charged_while_the_command_lives(machine, until):
    process = machine.holder("10Gi", 512, "ready", "hold")
    assert [said(process), said(process)] == ["ok", "ready"]
    command = command_of(machine, process)
    process.kill()
    process.wait()
    assert not nothing_left(machine)
    assert machine.charged() == 10 * GIB
    assert machine("run", "--whole", "2", "--no-wait", "--", "true").returncode == 75
    os.kill(command, signal.SIGKILL)
    until(lambda: nothing_left(machine))


def test_room_of_a_killed_runner_and_command_is_granted_to_who_waits(simulate):
    machine = simulate("1x16GiB")
    first = machine.holder("13Gi", "ready", "hold")
    assert said(first) == "ready"
    second = machine.holder("4Gi", "ready", "hold")
    assert "1st in line" in second.stderr.readline()
    command = command_of(machine, first)
    first.kill()
    os.kill(command, signal.SIGKILL)
    began = time.monotonic()
    assert said(second) == "ready", "nobody rings for the dead, so the head of the line looks"
    assert time.monotonic() - began < 3


def test_the_head_of_the_line_killed_lets_the_next_one_on(simulate):
    machine = simulate("1x16GiB")
    first = machine.holder("13Gi", "ready", "hold")
    assert said(first) == "ready"
    head = machine.holder("14Gi", "ready", "hold")
    assert "1st in line" in head.stderr.readline()
    behind = machine.holder("5Gi", "ready", "hold")
    assert "2nd in line" in behind.stderr.readline()
    head.kill()
    assert "1st in line" in behind.stderr.readline()
    first.stdin.close()
    assert said(behind) == "ready"


@pytest.mark.parametrize(
    "words",
    [
        ("fork", 512),
        (512, "fork", 256),
        ("daemon", 512),
        (64, "again", 512),
        ("closeall", 512),
        (512, "closeall"),
        ("daemon", 512, "closeall"),
        ("fork", "closeall", 512),
    ],
    ids=lambda words: "-".join(map(str, words)),
)
def test_whatever_uses_the_card_keeps_the_room(machine, until, words):
    """Children by fork, exec and setsid, and those that close what they inherited."""
    process = machine.holder("4Gi", *words, "ready", "hold")
    while said(process) != "ready":
        pass
    process.kill()
    process.wait()
    users = {each.pid for each in machine.cards.processes()}
    recorded = command_of(machine, process)
    if users - {recorded}:  # somebody else uses the card, and is to keep the room alone
        with contextlib.suppress(ProcessLookupError):
            os.kill(recorded, signal.SIGKILL)
        until(lambda: not alive(recorded))
    machine.settle()
    assert machine.charged() == 4 * GIB
    process.stdin.close()
    until(lambda: nothing_left(machine))


def test_a_program_that_clears_its_environment_is_charged_while_it_lives(machine, until):
    """What holds then: the charge, by the recorded process. Not the limit: the shim is gone."""
    cards = 'LD_LIBRARY_PATH="$LD_LIBRARY_PATH" COTENANT_STANDIN="$COTENANT_STANDIN"'
    script = f"exec env -i {cards} {sys.executable} {PROGRAM} 2048 ready hold"
    process = machine.run("1Gi", "sh", "-c", script)
    assert [said(process), said(process)] == ["ok", "ready"]
    (grant,) = machine.listing("ps")["grants"]
    assert (grant["limit"], grant["used"], grant["enforcer"]) == (GIB, 2304 << 20, "watch")
    card = machine.listing("gpus")["gpus"][0]
    assert (card["granted"], card["outside"]) == (GIB, (2304 << 20) - GIB)
    process.kill()
    process.wait()
    machine.settle()
    assert machine.charged() == GIB
    process.stdin.close()
    until(lambda: nothing_left(machine))


def test_a_stray_process_that_only_inherited_the_descriptor_keeps_the_room(machine, until):
    process = machine.run("1Gi", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    left = int(said(process))
    assert process.wait(10) == 0
    machine.settle()
    assert machine.charged() == GIB
    os.kill(left, signal.SIGKILL)
    until(lambda: nothing_left(machine))


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments(machine, until, seed):
    """kill -9 of the runner, of the command, or of both, from before the charge until after the start."""
    dice = random.Random(seed)
    for _ in range(8):
        victim = dice.choice(["runner", "command", "both"])
        process = machine.holder("10Gi", 512, "ready", "hold")
        time.sleep(dice.uniform(0.05, 0.45))
        command = command_of(machine, process)
        if victim != "command":
            process.kill()
        if victim != "runner" and command is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(command, signal.SIGKILL)
        if victim == "runner" and (command := command_of(machine, process)) is not None and alive(command):
            machine.settle()
            assert machine.charged() == 10 * GIB or not alive(command)
        process.stdin.close()
        process.stdout.close()
        process.stderr.close()
        process.wait(20)
    until(lambda: nothing_left(machine))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

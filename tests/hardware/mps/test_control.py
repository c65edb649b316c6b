"""The front end, against NVIDIA's own control daemon."""

import os
import signal

import mpsdaemon
import pytest

from cotenant.core.errors import BadInput
from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.control import (
    Control,
    MpsError,
    NoDaemon,
    NoProgram,
    NoReply,
    UnknownCommand,
    find_program,
    shows_memory,
)
from cotenant.hardware.mps.place import Place, place_in


@pytest.fixture
def control(mps):
    place = mps.place()
    daemon.start(mps.program, place, environ={"PATH": mps.server_path()})
    return mps.control(place)


def commands(control: Control) -> list[str]:
    """What has reached the daemon, from its own log."""
    lines = control.place.control_log.read_text().splitlines()
    return [line.partition("] Cmd:")[2] for line in lines if "] Cmd:" in line]


def test_percentages_are_applied_and_read_back(control):
    assert control.percentage() == 100
    for value in (30, 50):
        control.set_percentage(value)
        assert control.percentage() == value


def test_memory_limits_are_applied_and_read_back_as_the_daemon_shows_them(control):
    assert control.memory(0) is None
    control.set_memory(0, 1536)
    assert control.memory(0) == "1G", "it shows whole gigabytes, rounded down"
    control.set_memory(1, 3072)
    assert control.memory(1) == "3G"
    control.set_memory(31, 512)
    assert control.memory(31) == "512M"
    sent = [command for command in commands(control) if command.startswith("set")]
    assert [command.split()[-1] for command in sent] == ["1536M", "3072M", "512M"]


@pytest.mark.parametrize("value", [0, 101, -5, "abc", "1.5G", 33.3])
def test_nonsense_never_reaches_the_daemon(control, value):
    with pytest.raises(BadInput):
        control.set_percentage(value)
    if value != 101:
        with pytest.raises(BadInput):
            control.set_memory(0, value)
    with pytest.raises(BadInput):
        control.set_memory(-1, 512)
    with pytest.raises(BadInput, match="32 GPUs"):
        control.set_memory(32, 512)
    with pytest.raises(BadInput):
        control.clients("1; quit")
    with pytest.raises(BadInput):
        control.ask("get_server_list\nquit")
    assert commands(control) == []
    assert (control.percentage(), control.memory(0)) == (100, None)


def test_why_values_are_checked_here(control):
    """What the daemon itself does with nonsense: it answers with 0, and keeps something else."""
    control.ask("set_default_device_pinned_mem_limit 0 1.5G")
    assert control.memory(0) == "1M"
    control.ask("set_default_device_pinned_mem_limit 0 abc")
    assert control.memory(0) is None
    control.ask("set_default_active_thread_percentage 101")
    assert control.percentage() == 100


def test_errors_that_are_only_text_are_raised_in_the_daemons_words(control):
    with pytest.raises(UnknownCommand, match=r'MPS says \'Unknown command "nonsense"'):
        control.ask("nonsense")
    assert control.clients(4194304) == ()
    assert control.status(4194304) is None


def test_servers_are_listed_and_missed(control, mps):
    assert control.servers() == ()
    server = mps.start_server(control.place)
    assert control.servers() == (server,)
    assert control.clients(server) == ()
    os.kill(server, signal.SIGKILL)
    mpsdaemon.until(lambda: control.servers() == ())


def test_a_place_without_a_daemon(mps):
    with pytest.raises(NoDaemon, match="no MPS control daemon runs at"):
        mps.control(mps.place()).servers()


def test_a_daemon_that_hangs_is_waited_for_no_longer_than_the_time_limit(control):
    pid = daemon.holder(control.place)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(NoReply, match=r"did not answer 'get_server_list' in 0\.3 s"):
            Control(control.program, control.place, timeout=0.3).servers()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(NoProgram, match="nvidia-none is not here: it comes with NVIDIA's driver"):
        find_program({"PATH": str(tmp_path)}, "nvidia-none")
    with pytest.raises(NoProgram, match="cannot be run: No such file"):
        Control(tmp_path / "none", place_in(tmp_path, "x")).servers()


@pytest.mark.parametrize(
    ("reply", "error"),
    [("12 x", MpsError), ("1234567890123", MpsError), ("Insufficient privileges for UID 5.", MpsError)],
)
def test_replies_that_are_not_understood_are_errors(tmp_path, reply, error):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{reply}'\n")
    program.chmod(0o755)
    place = Place(tmp_path / "pipe", tmp_path / "log")
    with pytest.raises(error, match="MPS says"):
        Control(program, place).servers()
    with pytest.raises(error, match="MPS says"):
        Control(program, place).percentage()


def test_what_is_shown_is_compared_with_what_was_set():
    assert shows_memory("1023M", 1023)
    assert shows_memory("1G", 1536)
    assert shows_memory("1536M", 1536)
    assert shows_memory("3G", 3072)
    assert not shows_memory("1M", 1536)
    assert not shows_memory("2G", 1536)
    assert not shows_memory(None, 1)

"""The supervisor, with NVIDIA's own control daemon: started, killed, restored, taken over."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mpsdaemon
import pytest

from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.control import NoProgram
from cotenant.hardware.mps.place import place_in
from cotenant.hardware.mps.supervisor import Defaults, Supervisor


class Running:
    """A supervisor in a loop of its own, driven by `tend` as its `run` does."""

    def __init__(self, mps, key="node", **given):
        self.said = []
        self.supervisor = Supervisor(
            place_in(mps.folder, key),
            lambda: mps.program,
            lambda: Defaults(30, 1536, devices=2),
            environ={"PATH": mps.server_path()},
            tell=self.said.append,
            warn=self.said.append,
            **given,
        )

    def until(self, fact, seconds=10.0):
        def look():
            self.supervisor.tend()
            return fact()

        mpsdaemon.until(look, seconds)


def values(mps, place):
    control = mps.control(place)
    return control.percentage(), control.memory(0), control.memory(1), control.memory(2)


def test_it_starts_the_daemon_with_its_defaults(mps):
    own = Running(mps).supervisor
    assert own.trouble is not None
    own.tend()
    assert (own.trouble, own.starts) == (None, 1)
    assert daemon.holder(own.place) == own.pid
    assert values(mps, own.place) == (30, "1G", "1G", None)


@pytest.mark.asyncio
async def test_a_daemon_that_is_killed_is_back_with_its_values_within_5_seconds(mps):
    own = Running(mps).supervisor
    running = asyncio.create_task(own.run())
    try:
        while own.trouble is not None:  # noqa: ASYNC110 -- it is looked at, as others do
            await asyncio.sleep(0.02)
        began = time.monotonic()
        killed = mps.kill(own.place)
        noticed = None
        while own.trouble is not None or own.pid == killed:
            if noticed is None and own.trouble is not None:
                noticed = time.monotonic() - began
            await asyncio.sleep(0.01)
        took = time.monotonic() - began
        assert noticed is not None
        assert noticed < 1
        assert took < 5
        assert own.starts == 2
        assert values(mps, own.place) == (30, "1G", "1G", None)
    finally:
        running.cancel()
    assert daemon.holder(own.place) == own.pid, "it outlives its supervisor"


def test_one_that_is_killed_again_and_again_is_started_later_each_time(mps):
    times = [0.0]
    own = Running(mps, clock=lambda: times[0]).supervisor
    own.tend()

    def restored_after() -> float:
        mps.kill(own.place)
        mpsdaemon.until(lambda: daemon.holder(own.place) is None)
        began = times[0]
        while own.tend() or own.trouble is not None:
            times[0] += 0.25
        return times[0] - began

    assert [restored_after() for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]
    times[0] += 61
    assert restored_after() == 0, "it has lived for a minute"


def test_a_running_daemon_is_taken_over_and_gets_its_values_again(mps):
    first = Running(mps).supervisor
    first.tend()
    mps.control(first.place).set_percentage(77)
    second = Running(mps).supervisor
    second.tend()
    assert (second.pid, second.starts, second.trouble) == (first.pid, 0, None)
    assert values(mps, second.place)[0] == 30


def test_the_daemon_survives_a_supervisor_that_is_killed_and_the_next_takes_it_over(mps):
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from cotenant.hardware.mps.place import place_in\n"
        "from cotenant.hardware.mps.supervisor import Defaults, Supervisor\n"
        "own = Supervisor(place_in(Path(sys.argv[1]), 'node'), lambda: Path(sys.argv[2]), Defaults)\n"
        "asyncio.run(own.run())\n"
    )
    place = place_in(mps.folder, "node")
    process = subprocess.Popen([sys.executable, "-c", program, mps.folder, mps.program])
    try:
        mpsdaemon.until(lambda: daemon.holder(place))
        pid = daemon.holder(place)
    finally:
        process.kill()
        process.wait()
    time.sleep(0.1)
    own = Running(mps).supervisor
    own.tend()
    assert (own.pid, own.starts) == (pid, 0)


def test_a_daemon_that_others_have_put_in_its_place_gets_the_values_too(mps):
    own = Running(mps).supervisor
    own.tend()
    mps.kill(own.place)
    mpsdaemon.until(lambda: daemon.holder(own.place) is None)
    daemon.start(mps.program, own.place)
    own.tend()
    assert (own.starts, own.trouble) == (1, None)
    assert values(mps, own.place)[0] == 30


def test_values_that_somebody_changed_are_set_again(mps):
    times = [0.0]
    own = Running(mps, clock=lambda: times[0]).supervisor
    own.tend()
    mps.control(own.place).set_percentage(80)
    own.tend()
    assert mps.control(own.place).percentage() == 80, "it does not ask at every look"
    times[0] = 31.0
    own.tend()
    assert mps.control(own.place).percentage() == 30


def test_a_gpu_that_comes_later_gets_its_limit_at_the_next_look(mps):
    wanted = [Defaults(100, 512, devices=1)]
    own = Supervisor(place_in(mps.folder, "node"), lambda: mps.program, lambda: wanted[0])
    own.tend()
    assert mps.control(own.place).memory(1) is None
    wanted[0] = Defaults(100, 512, devices=2)
    own.tend()
    assert mps.control(own.place).memory(1) == "512M"


def test_servers_of_a_killed_daemon_do_not_keep_the_next_from_starting(mps):
    own = Running(mps).supervisor
    own.tend()
    server = mps.start_server(own.place)
    mps.kill(own.place)
    mpsdaemon.until(lambda: own.tend() or own.starts == 2)
    assert Path(f"/proc/{server}").exists(), "clients may still use it"
    assert mps.control(own.place).servers() == ()


def test_a_daemon_that_hangs_is_reported_and_left_alone(mps):
    times = [0.0]
    running = Running(mps, clock=lambda: times[0], timeout=0.3)
    own = running.supervisor
    own.tend()
    os.kill(own.pid, signal.SIGSTOP)
    try:
        times[0] = 31.0
        own.tend()
        assert "did not answer" in own.trouble
        assert "did not answer" in running.said[-1]
    finally:
        os.kill(own.pid, signal.SIGCONT)
    times[0] = 37.0
    own.tend()
    assert own.trouble is None


def test_a_process_that_only_holds_the_lock_is_no_daemon_and_is_replaced(mps):
    """Containers can open the file: one that locks it must not keep MPS from running."""
    times = [0.0]
    own = Running(mps, clock=lambda: times[0]).supervisor
    place = mps.place()
    place.lock.touch()
    program = (
        f"import fcntl, time; f = open({str(place.lock)!r}); fcntl.lockf(f, fcntl.LOCK_SH); time.sleep(60)"
    )
    impostor = subprocess.Popen([sys.executable, "-c", program])
    try:
        mpsdaemon.until(lambda: daemon.holder(place) == impostor.pid)
        own.tend()
        assert "no MPS control daemon runs" in own.trouble
        for _ in range(20):
            times[0] += 1
            own.tend()
        assert own.trouble is None
        assert own.pid not in (None, impostor.pid)
        assert impostor.poll() is None
    finally:
        impostor.kill()
        impostor.wait()


def test_a_missing_program_is_said_once_and_looked_for_again(mps):
    times, found = [0.0], [None]

    def find():
        if found[0] is None:
            raise NoProgram("nvidia-cuda-mps-control is not here")
        return found[0]

    said = []
    own = Supervisor(place_in(mps.folder, "node"), find, Defaults, warn=said.append, clock=lambda: times[0])
    for _ in range(5):
        own.tend()
        times[0] += 40
    assert own.trouble == "nvidia-cuda-mps-control is not here"
    assert said == ["nvidia-cuda-mps-control is not here"]
    found[0] = mps.program
    own.tend()
    assert own.trouble is None


def test_an_option_that_the_driver_does_not_have_is_said(mps):
    own = Supervisor(place_in(mps.folder, "node"), lambda: mps.program, Defaults, options=("-nonsense",))
    own.tend()
    assert "-d -nonsense started no daemon" in own.trouble


def test_a_pid_file_is_not_trusted(mps):
    place = mps.place()
    (place.pipe / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    (place.pipe / "control_lock").touch()
    assert daemon.holder(place) is None
    own = Running(mps).supervisor
    own.tend()
    assert own.trouble is None
    assert own.pid != os.getpid()


def test_stop_ends_the_daemon_and_its_servers(mps):
    own = Running(mps).supervisor
    own.tend()
    server = mps.start_server(own.place)
    daemon.stop(mps.program, own.place, 1)
    assert daemon.holder(own.place) is None
    mpsdaemon.until(lambda: not Path(f"/proc/{server}").exists())
    daemon.stop(mps.program, own.place)


def test_logs_are_cut_while_the_daemon_writes_them(mps):
    own = Running(mps).supervisor
    own.tend()
    with open(own.place.control_log, "ab") as log:
        log.write(b"\n" * (1 << 20))
    daemon.shorten_logs(own.place)
    assert own.place.control_log.stat().st_size == 0
    mps.control(own.place).percentage()
    mpsdaemon.until(lambda: own.place.control_log.read_text().rstrip().endswith("UI closed"))
    assert "\0" not in own.place.control_log.read_text(), "it goes on at the end of what is left"


def test_a_path_that_is_too_long_for_its_sockets_is_refused(mps):
    own = Supervisor(place_in(mps.folder / ("x" * 90), "node"), lambda: mps.program, Defaults)
    own.tend()
    assert "too long for a UNIX socket" in own.trouble

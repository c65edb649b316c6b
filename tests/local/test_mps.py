"""`cotenant run --mps` with NVIDIA's own control daemon. It cannot limit simulated GPUs, and all else is real."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.grant import Share
from cotenant.hardware.mps import daemon
from cotenant.local.home import prepare
from cotenant.local.mps import is_unused, keep, own_place, stop_unused

COMPUTE = ("--gpu-compute", "30", "--mps")
SHOW = "env | grep ^CUDA_MPS | sort; echo ready; read x; true"


class Runs:
    """Commands with --mps on a machine of simulated GPUs."""

    def __init__(self, machine, mps):
        self.machine, self.mps = machine, mps
        self.place = own_place(machine.home)
        self.env = {"PATH": f"{mps.program.parent}:{os.environ['PATH']}"}

    def start(self, *options, memory="1536Mi"):
        process = self.machine.run(memory, "sh", "-c", SHOW, options=(*COMPUTE, *options), env=self.env)
        found = {}
        for line in process.stdout:
            if line == "ready\n":
                return process, found
            name, _, value = line.strip().partition("=")
            found[name] = value
        raise AssertionError(process.stderr.read())

    @property
    def pid(self):
        return daemon.holder(self.place)


@pytest.fixture
def runs(machine, mps):
    made = Runs(machine, mps)
    yield made
    machine.end()
    if pid := made.pid:
        os.kill(pid, signal.SIGKILL)


def end(process):
    process.stdin.close()
    assert process.wait(20) == 0


def test_it_starts_a_daemon_sets_both_variables_and_ends_it_with_the_last_command(runs):
    first, found = runs.start()
    assert found == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1536M",
        "CUDA_MPS_PIPE_DIRECTORY": str(runs.place.pipe),
    }
    pid = runs.pid
    assert pid
    assert "MPS cannot limit simulated GPUs" in first.stderr.readline()
    second, _ = runs.start(memory="3Gi")
    assert runs.pid == pid, "all commands of a user share one"
    assert runs.mps.control(runs.place).percentage() == 100
    end(first)
    assert runs.pid == pid
    end(second)
    assert runs.pid is None


def test_a_limit_that_is_only_observed_is_not_enforced_by_mps(runs):
    process, found = runs.start("--enforce", "observe")
    assert set(found) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY"}
    end(process)


def test_a_runner_that_is_killed_leaves_the_daemon_to_its_command_and_the_next_run_ends_it(runs, until):
    process, _ = runs.start()
    (row,) = runs.machine.rows()
    process.kill()
    process.wait()
    assert runs.machine("run", "--gpu-memory", "1Gi", "--", "true", env=runs.env).returncode == 0
    assert runs.pid, "its command still needs it"
    os.kill(row["process"]["pid"], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{row['process']['pid']}").exists())
    assert runs.machine("run", "--gpu-memory", "1Gi", "--", "true", env=runs.env).returncode == 0
    assert runs.pid is None


def test_doctor_ends_a_daemon_that_nobody_needs(runs, until):
    process, _ = runs.start()
    (row,) = runs.machine.rows()
    for pid in (process.pid, row["process"]["pid"]):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    until(lambda: is_unused(runs.machine.home, ()))
    fixed = runs.machine("doctor", "--fix", env=runs.env).stdout
    assert "mps-unused" in fixed
    assert "ended it" in fixed
    assert runs.pid is None


def test_a_job_that_lives_keeps_the_daemon_also_where_nothing_was_inherited(make_job, dead, mps):
    """Programs close what they do not know before they start others."""
    home = prepare(mps.folder / "h", tmpfs=mps.folder)
    environ = {"PATH": str(mps.program.parent)}
    os.close(keep(home, environ))
    share = Share("GPU-0", 4 << 30, 30)
    lives = make_job("a", demand=Demand(Memory(bytes=4 << 30), compute=30), shares=(share,))
    assert not stop_unused(home, [lives], environ)
    other = make_job("b", shares=(Share("GPU-0", 4 << 30),))
    ended, waits = replace(lives, process=dead), replace(lives, shares=())
    assert stop_unused(home, [other, ended, waits], environ)
    assert not stop_unused(home, [], environ), "it is gone"


def test_a_daemon_that_is_killed_is_started_by_the_next_command(runs):
    first, _ = runs.start()
    killed = runs.mps.kill(runs.place)
    second, _ = runs.start()
    assert runs.pid not in (None, killed)
    end(first)
    end(second)
    assert runs.pid is None


def test_a_daemon_that_runs_already_is_used(runs):
    place = runs.mps.place()
    daemon.start(runs.mps.program, place)
    runs.env |= place.environment()
    process, found = runs.start()
    assert found["CUDA_MPS_PIPE_DIRECTORY"] == str(place.pipe)
    assert runs.pid is None
    end(process)
    assert daemon.holder(place), "it is not ours to end"


def test_a_machine_without_mps_says_what_to_install_and_charges_nothing(machine):
    if shutil.which("nvidia-cuda-mps-control"):
        pytest.skip("MPS is installed here")
    done = machine("run", "--gpu-memory", "1Gi", *COMPUTE, "--", "true")
    assert done.returncode == 1
    assert "nvidia-cuda-mps-control is not here: it comes with NVIDIA's driver" in done.stderr
    assert machine.rows() == []


def test_mps_without_a_share_of_compute_is_refused(machine):
    done = machine("run", "--gpu-memory", "1Gi", "--mps", "--", "true")
    assert done.returncode == 2
    assert "--mps: which share of compute? Add it, as in --gpu-compute 30 --mps" in done.stderr


def test_inside_a_grant_it_is_refused(machine):
    inner = " ".join([*machine.line("run", "--gpu-memory", "1Gi", *COMPUTE, "--", "true")])
    done = machine("run", "--gpu-memory", "1Gi", "--gpu-compute", "40", "--", "sh", "-c", inner)
    assert done.returncode == 2
    assert "give --mps to the `cotenant run` that started" in done.stderr


def test_each_user_of_a_shared_ledger_has_a_daemon(shared, mps):
    machine, other = shared
    env = {"PATH": f"{mps.folder}:{os.environ['PATH']}"}
    (mps.folder / "nvidia-cuda-mps-control").write_bytes(mps.program.read_bytes())
    (mps.folder / "nvidia-cuda-mps-control").chmod(0o755)
    show = "echo $CUDA_MPS_PIPE_DIRECTORY; stat -c %u $CUDA_MPS_PIPE_DIRECTORY/control"
    for caller, uid in ((machine, 0), (other, 65534)):
        done = caller("run", "--gpu-memory", "1Gi", *COMPUTE, "--", "sh", "-c", show, env=env)
        assert done.returncode == 0, done.stderr
        folder, owner = done.stdout.split()
        assert f"/mps/{uid}/" in folder
        assert int(owner) == uid

import os

from cotenant.hardware.enforcers import mps


def test_no_pipe_is_no_mps(tmp_path):
    assert not mps.is_running({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})


def test_a_daemon_that_lives_is_found(tmp_path):
    os.mkfifo(tmp_path / "control")
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    assert mps.is_running({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})


def test_a_pipe_left_by_a_dead_daemon_is_no_mps(tmp_path):
    os.mkfifo(tmp_path / "control")
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text("4194304999\n")
    assert not mps.is_running({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})


def test_a_pipe_whose_daemon_tells_no_pid_counts(tmp_path):
    os.mkfifo(tmp_path / "control")
    assert mps.is_running({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})


def test_it_holds_compute_beside_an_enforcer_of_memory(tmp_path):
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    enforcer = mps.Mps(environ, 30)
    assert enforcer.availability() == (False, f"no MPS control daemon runs at {tmp_path}")
    assert enforcer.confirm(tmp_path).state == "fails"
    os.mkfifo(tmp_path / "control")
    assert enforcer.availability().available
    assert enforcer.confirm(tmp_path).state == "unknown", "the daemon is not asked for its clients yet"
    own = enforcer.process_environment(tmp_path, {"COTENANT_SLOT": "/slots/s"})
    assert own == {"COTENANT_SLOT": "/slots/s", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}
    assert enforcer.tear_down(tmp_path)

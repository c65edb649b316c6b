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

"""Whether NVIDIA's MPS can hold a command to its share of the compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PIPE_FOLDER = "/tmp/nvidia-mps"  # noqa: S108 -- it is NVIDIA's choice


def is_running(environ: Mapping[str, str]) -> bool:
    """Whether the control daemon that this environment would reach has its pipe there and lives."""
    folder = Path(environ.get("CUDA_MPS_PIPE_DIRECTORY") or _PIPE_FOLDER)
    if not (folder / "control").exists():
        return False
    try:
        pid = int((folder / "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return True  # the pipe is there; not every version tells its pid, or to everybody
    return Path(f"/proc/{pid}").exists()


def environment(compute: int) -> dict[str, str]:
    """MPS reads it when a process makes its first context."""
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(compute)}

"""Names the folders of one MPS control daemon.

Each of our daemons has a pipe folder and a log folder of its own, so that it never meets one that somebody
else has started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import BadInput
from cotenant.dialects.names import MPS_PIPE_FOLDER

LOG_FOLDER = "CUDA_MPS_LOG_DIRECTORY"
USUAL_PIPE_FOLDER = Path("/tmp/nvidia-mps")  # noqa: S108 -- it is NVIDIA's choice
_LONGEST_SOCKET = "control_privileged"
_MOST_CHARACTERS = 107
"""Of the path of a UNIX socket, in bytes."""


class Place(NamedTuple):
    pipe: Path
    """Sockets, through which clients and the front end reach the daemon."""
    log: Path

    @property
    def lock(self) -> Path:
        """The file that a daemon holds a POSIX lock on for as long as it lives."""
        return self.pipe / "control_lock"

    @property
    def control_log(self) -> Path:
        return self.log / "control.log"

    @property
    def logs(self) -> tuple[Path, ...]:
        return (self.control_log, self.log / "server.log")

    def environment(self) -> dict[str, str]:
        """Returns the variables by which a daemon, its front end and its clients find each other."""
        return {MPS_PIPE_FOLDER: str(self.pipe), LOG_FOLDER: str(self.log)}

    def make(self, mode: int) -> None:
        """Creates the folders. Clients of another user must be able to enter the pipe folder: `mode` 0o755;
        0o700 keeps the daemon to its own user.
        """
        if len(os.fsencode(self.pipe / _LONGEST_SOCKET)) > _MOST_CHARACTERS:
            raise BadInput(
                f"{self.pipe}: too long for a UNIX socket: choose a folder whose path has at most "
                f"{_MOST_CHARACTERS - len(_LONGEST_SOCKET) - 1} bytes"
            )
        for folder in self:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)


def place_in(folder: Path, key: str) -> Place:
    """Returns the place of the daemon `key` below a folder that keeps several."""
    return Place(folder / "pipes" / key, folder / "logs" / key)


def place_of(environ: Mapping[str, str]) -> Place:
    """Returns the place of the daemon that a program with this environment would reach."""
    pipe = Path(environ.get(MPS_PIPE_FOLDER) or USUAL_PIPE_FOLDER)
    return Place(pipe, Path(environ.get(LOG_FOLDER) or "/var/log/nvidia-mps"))

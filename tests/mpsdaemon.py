"""The real MPS control daemon, fetched when it is first needed, and a program that it starts as its server.

NVIDIA's own server ends at once on a machine without a GPU. The daemon looks for it on PATH, so a script there
can stand in for it: it lives until it is killed, and never speaks to the daemon. The daemon lists it and
notices its end, as it does with a real one. Clients cannot connect to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.control import PATH, Control
from cotenant.hardware.mps.place import Place, place_in
from scripts import mps

SERVER = "#!/bin/sh\nexec sleep 600\n"


def program() -> Path:
    """Returns NVIDIA's control daemon, or skips the test with the reason why there is none."""
    try:
        if not (mps.folder() / ".missing").exists():
            mps.fetch()
        return mps.find()
    except mps.CannotGet as reason:
        pytest.skip(str(reason))


def until(fact: Callable[[], object], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.02)


class Daemons:
    """Places for daemons in a folder; what runs there in the end is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = program()
        self._servers: set[int] = set()

    def place(self, key: str = "node") -> Place:
        made = place_in(self.folder, key)
        made.make(0o755)
        return made

    def control(self, place: Place) -> Control:
        return Control(self.program, place)

    def server_path(self) -> str:
        """Returns a PATH on which our program stands for NVIDIA's server."""
        script = self.folder / "bin" / "nvidia-cuda-mps-server"
        script.parent.mkdir(exist_ok=True)
        script.write_text(SERVER)
        script.chmod(0o755)
        return f"{script.parent}:{PATH}"

    def start_server(self, place: Place, uid: int = 0) -> int:
        """Has the daemon start a server, and returns its pid."""
        control = self.control(place)
        before = set(control.servers())
        control.start_server(uid)
        until(lambda: set(control.servers()) - before)
        (started,) = set(control.servers()) - before
        self._servers.add(started)
        return started

    def kill(self, place: Place) -> int:
        """Kills the daemon with -9 and returns the pid that it had."""
        pid = daemon.holder(place)
        assert pid, "no daemon runs here"
        os.kill(pid, signal.SIGKILL)
        return pid

    def close(self) -> None:
        for lock in self.folder.rglob("control_lock"):
            if pid := daemon.holder(Place(lock.parent, lock.parent)):
                os.kill(pid, signal.SIGKILL)
        for pid in self._servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

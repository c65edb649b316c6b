"""Decides when a replica has loaded: by its command, after a time, or at its first use of the GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from cotenant.local.scalers.file import Declared
from cotenant.local.scalers.replicas import Live
from cotenant.local.scalers.workload import READY_AFTER

EVERY = 1.0
LONGEST = 5.0
"""Seconds between two calls of the command, and for each of them at most."""


class Readiness:
    """Calls the `ready` commands of one workload, one at a time for each replica."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self._last: dict[int, float] = {}

    def check(self, declared: Declared, live: Live) -> bool:
        """Whether the replica is ready now. Never waits: a command's answer is seen by a later call."""
        ready = declared.spec.ready
        if ready is None:
            return live.used or live.has_gpu_for >= READY_AFTER
        if ready.command is None:
            return live.has_gpu_for >= (ready.seconds or 0.0)
        return self._answer(live.replica.number) or self._call(declared, ready.command, live.replica.number)

    def forget(self, number: int) -> None:
        """Ends the call for a replica that has ended."""
        call = self._calls.pop(number, None)
        if call is not None:
            if call[0].poll() is None:
                os.killpg(call[0].pid, signal.SIGKILL)  # what a shell has started, too
            call[0].wait()

    def _answer(self, number: int) -> bool:
        call = self._calls.get(number)
        if call is None:
            return False
        process, began = call
        if process.poll() is None and time.monotonic() - began < LONGEST:
            return False
        self.forget(number)
        return process.returncode == 0

    def _call(self, declared: Declared, command: tuple[str, ...], number: int) -> bool:
        if number in self._calls or time.monotonic() - self._last.get(number, 0.0) < EVERY:
            return False
        self._last[number] = time.monotonic()
        spec = declared.spec
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=declared.file.parent / (spec.working_directory or "."),
                env={**os.environ, **spec.environment, "COTENANT_REPLICA": str(number)},
                start_new_session=True,
            )
        except OSError:
            return False
        self._calls[number] = (process, time.monotonic())
        return False

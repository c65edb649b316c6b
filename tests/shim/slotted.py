"""Programs in a slot on a simulated card of 16 GiB: real processes, the shim preloaded, no ledger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from cotenant.hardware import libraries, slots
from cotenant.hardware.standin import driver as standin

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
CONTEXT = 256 * MIB


class Bench:
    """A state of simulated cards and one slot on the first of them."""

    def __init__(self, folder: Path, spec: str = "1x16GiB") -> None:
        self.state = folder / "standin"
        self.slot = folder / "slot"
        standin.create(self.state, standin.parse_spec(spec), context_bytes=CONTEXT, launch_seconds=0)
        self.cards = standin.StandIn(self.state)
        self.uuid = self.cards.cards()[0].uuid
        self.started: list[subprocess.Popen[str]] = []

    def grant(self, size: int, mode: str = "enforce", uuid: str | None = None) -> None:
        limit = slots.CardLimit(uuid or self.uuid, size, CONTEXT)
        slots.create(self.slot, slots.Limits("test", mode, (limit,)))

    def env(self, *, shim: bool = True, **more: str) -> dict[str, str]:
        env = standin.environment(self.state, dict(os.environ))
        env["PYTHONPATH"] = str(HERE)
        if shim:
            env.update(COTENANT_SLOT=str(self.slot), LD_PRELOAD=str(libraries.shim()))
        return {**env, **more}

    def run(self, code: str, *, shim: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; what it asserts is asserted."""
        done = subprocess.run(
            [sys.executable, "-c", "from program import *\n" + textwrap.dedent(code)],
            env=self.env(shim=shim, **more),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    def start(self, code: str, **more: str) -> subprocess.Popen[str]:
        """Start a program and wait for its first line."""
        process = subprocess.Popen(
            [sys.executable, "-c", "from program import *\n" + textwrap.dedent(code)],
            env=self.env(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), "the program ended before it said a word"
        return process

    def stop(self, process: subprocess.Popen[str]) -> None:
        """SIGSTOP at any instruction but inside the stand-in's own lock: a real driver's locks are the kernel's,
        and no signal stops anybody there.
        """
        while True:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            if not self.cards.is_locked(self.uuid):
                return
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)

    def usage(self) -> slots.Usage:
        return slots.read_usage(self.slot)

    def end(self) -> None:
        """Whatever a test left running."""
        for process in self.started:
            with process:  # closes its pipes
                process.kill()

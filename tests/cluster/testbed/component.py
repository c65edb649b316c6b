"""One process of the testbed: started, watched until it is ready, stopped and hurt by its own pid."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import warm

from . import places

LOGS = places.STATE / "logs"


def answers(connection: http.client.HTTPConnection, path: str) -> Callable[[], bool]:
    """Whether a health page says 200: what most components are ready by."""

    def asked() -> bool:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return asked


class NotReady(Exception):
    """A component died or did not become ready; the end of its log is in the message."""


class Component:
    """Used for Kubernetes' own processes and, by tests, for Cotenant's server and agent."""

    forks_cotenant = False
    """Whether Cotenant is forked from a process that has imported it; a bench starts it as users do."""

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        *,
        ready: Callable[[], bool] = lambda: True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.environment = dict(environment or {})
        self.ready = ready
        self.log = LOGS / f"{name}.log"
        self.process: subprocess.Popen[bytes] | warm.Process | None = None
        self.started = 0.0
        """Unix time of the last start."""

    @property
    def pid(self) -> int:
        if self.process is None:
            raise NotReady(f"{self.name} is not started")
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Does not wait: components that need each other start at the same time."""
        if self.running:
            raise NotReady(f"{self.name} runs already, as {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.started = time.time()
        environment = {**os.environ, **self.environment}
        words = _words(self.command)
        if self.forks_cotenant and words is not None and warm.can_start(environment):
            self.process = warm.Process(words, environment, (os.devnull, str(self.log), str(self.log)))
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def wait(self, seconds: float = 60) -> None:
        """Until it is ready, or says why it is not."""
        until = time.monotonic() + seconds
        while True:
            if not self.running:
                ended = self.process.returncode if self.process else "before its start"
                raise NotReady(f"{self.name} ended ({ended}):\n{self.tail()}")
            if self.ready():
                return
            if time.monotonic() > until:
                raise NotReady(f"{self.name} was not ready in {seconds:.0f} s:\n{self.tail()}")
            time.sleep(0.06)

    def stop(self, patience: float = 10) -> None:
        """Asks, and kills what does not listen."""
        if self.process is None:
            return
        if self.running:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self.kill()

    def kill(self) -> None:
        """As the kernel would for want of memory: it cannot say goodbye."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, seconds: float = 60) -> None:
        self.stop()
        self.start()
        self.wait(seconds)

    def tail(self, lines: int = 20) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(_decoded(self.log).splitlines()[-lines:])
        return "(no log)"


COTENANT = ([sys.executable, "-m", "cotenant.cli.main"], [sys.executable, "-c", warm.CALL])
"""How a command begins that is Cotenant itself."""


def _words(command: Sequence[str]) -> list[str] | None:
    """Returns the arguments of a command of Cotenant; None of any other."""
    return list(command[3:]) if list(command[:3]) in COTENANT else None


def _decoded(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")

"""Sets up the demo: a separate home, simulated GPUs, and the commands that run on them.

Everything is done with the `cotenant` command, as a person would do it. All of it is removed at the end,
whatever happens in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cotenant.core.errors import CotenantError
from cotenant.hardware.enforcers.shim import without_slot
from cotenant.hardware.standin import driver as standin
from cotenant.local import home
from cotenant.local.store import LedgerStore

PATIENCE = 15.0
"""The longest time in seconds that any step may take."""
LAUNCH_SECONDS = 0.005
"""How long a kernel launch occupies a GPU: enough for GPUs to look busy."""


class Broken(CotenantError):
    """A step did not happen; the demo cannot go on."""


class Screen(Protocol):
    """Prints the demo."""

    def heading(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def typed(self, command: str) -> None:
        """Prints a command line as a person would type it."""

    def heard(self, line: str) -> None:
        """Prints a line of a command's output."""


class Actor:
    """A `cotenant run` and the command in it."""

    def __init__(self, name: str, runner: subprocess.Popen[str], errors: Path) -> None:
        self.name = name
        self.runner = runner
        self._errors = errors
        self._read = 0
        self.pid: int | None = None
        """The command's PID, once it has started."""
        self.over = False
        """Known to have ended: its PIDs may be reused by now."""

    def answer(self) -> dict[str, Any]:
        stdout = self.runner.stdout
        if stdout is None or not select.select([stdout], [], [], PATIENCE)[0]:
            raise Broken(f"{self.name} does not answer")
        line = stdout.readline()
        if not line:
            raise Broken(f"{self.name} has ended: {self.errors().strip() or 'it said nothing'}")
        told: dict[str, Any] = json.loads(line)
        self.pid = told["pid"]
        return told

    def tell(self, line: str) -> None:
        if self.runner.stdin is None:
            raise Broken(f"{self.name} does not listen")
        try:
            self.runner.stdin.write(f"{line}\n")
            self.runner.stdin.flush()
        except BrokenPipeError:
            raise Broken(f"{self.name} has ended: {self.errors().strip()}") from None

    def ask(self, line: str) -> dict[str, Any]:
        self.tell(line)
        return self.answer()

    def end(self) -> int:
        """Lets the command exit and returns the exit code of `cotenant run`."""
        self.tell("end")
        return self.finish()

    def errors(self) -> str:
        """Reads what the runner and the command have written to stderr."""
        return self._errors.read_text()

    def new_lines(self) -> list[str]:
        """Reads what it has printed since the last time."""
        lines = self.errors().splitlines()
        self._read, new = len(lines), lines[self._read :]
        return new

    def finish(self) -> int:
        """Waits for the end of a command that ends by itself."""
        try:
            code = self.runner.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Broken(f"{self.name} does not end") from None
        self.over = True
        return code

    def kill(self) -> None:
        """Kills the runner and all it started."""
        if self.over:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.runner.pid, signal.SIGKILL)
        self.runner.wait()


class Stage:
    def __init__(self, folder: Path, spec: str, screen: Screen) -> None:
        self.screen = screen
        self.home = home.prepare(folder / "home", spec)
        standin.create(self.home.standin, standin.parse_spec(spec), launch_seconds=LAUNCH_SECONDS)
        self.cards = standin.StandIn(self.home.standin)
        self.actors: list[Actor] = []
        self._folder = folder
        self._environ = _environ(os.environ, folder / "home", spec)
        for script in ("worker.py", "consumer.py"):
            shutil.copy(Path(__file__).with_name(script), folder / script)

    def run(self, name: str, grant: str, hold: str, *options: str) -> Actor:
        """Starts `cotenant run`; does not wait for the command's answer, since it may wait in line."""
        return self._run(name, ["--gpu-memory", grant, *options], hold)

    def run_whole(self, name: str, gpus: int, *options: str) -> Actor:
        """The same with whole GPUs."""
        return self._run(name, ["--whole", str(gpus), *options], "1Gi")

    def write(self, name: str, text: str) -> None:
        """Writes a file into the folder in which the commands run."""
        (self._folder / name).write_text(text)

    def start(self, *arguments: str) -> Actor:
        """Starts a command that goes on; what it prints is read with `new_lines`."""
        self.screen.typed(f"cotenant {' '.join(arguments)} &")
        return self._start(arguments[0], arguments, self._folder / f"{arguments[0]}.out")

    def _run(self, name: str, options: Sequence[str], hold: str) -> Actor:
        command = [os.path.basename(sys.executable), "worker.py", hold]
        arguments = ["run", *options, "--name", name, "--", *command]
        self.screen.typed(f"cotenant {' '.join(arguments)} &")
        return self._start(name, arguments, None)

    def _start(self, name: str, arguments: Sequence[str], output: Path | None) -> Actor:
        errors = output or self._folder / f"{name}.err"
        with errors.open("w") as sink, undisturbed():
            runner = subprocess.Popen(
                _cotenant(arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if output is None else sink,
                stderr=sink,
                text=True,
                cwd=self._folder,
                env=self._environ,
                start_new_session=True,
            )
            actor = Actor(name, runner, errors)
            self.actors.append(actor)
        return actor

    def show(self, *arguments: str) -> None:
        """Runs a command and prints its output."""
        self.screen.typed(f"cotenant {' '.join(arguments)}")
        self._ask(arguments, None)

    def listing(self, command: str) -> dict[str, Any]:
        """Runs a command with `-o json` and returns what it prints."""
        listing: dict[str, Any] = json.loads(self._ask([command, "-o", "json"], subprocess.PIPE))
        return listing

    def _ask(self, arguments: Sequence[str], output: int | None) -> str:
        """Runs a command to its end; it never outlives the demo."""
        with undisturbed():
            process = subprocess.Popen(
                _cotenant(arguments), cwd=self._folder, env=self._environ, stdout=output, text=True
            )
        try:
            told, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise Broken(f"cotenant {' '.join(arguments)} ended with {process.returncode}")
        return told or ""

    def end(self) -> None:
        for actor in self.actors:
            actor.kill()
        if self.home.ledger.exists():  # replicas have sessions of their own
            for job in LedgerStore(self.home).jobs():
                if job.process.alive():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(job.process.pid, signal.SIGKILL)

    def held_by(self, actor: Actor) -> dict[str, int]:
        """Returns bytes by GPU, as the simulated driver counts them."""
        return next((dict(each.used) for each in self.cards.processes() if each.pid == actor.pid), {})


@contextlib.contextmanager
def stage(spec: str, screen: Screen) -> Iterator[Stage]:
    with contextlib.ExitStack() as after:
        with undisturbed():
            folder = Path(tempfile.mkdtemp(prefix="cotenant-demo-"))
            after.callback(_remove, folder)
            after.callback(_remove, home.prepare(folder / "home").runtime)
        made = Stage(folder, spec, screen)
        after.callback(made.end)
        yield made


def _remove(folder: Path) -> None:
    """Removes the folder, again if needed: a process that is being killed may still create a file there."""
    ends = time.monotonic() + PATIENCE
    while folder.exists() and time.monotonic() < ends:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delays signals to the end of the block: a process is either not started, or known and killed later."""
    waiting: list[tuple[int, object]] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, lambda *came: waiting.append(came)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    for came, _ in waiting[:1]:
        signal.raise_signal(came)


def until(condition: Callable[[], bool], what: str, pause: float = 0.01) -> float:
    """Waits until the condition holds; returns the seconds that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE:
            raise Broken(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(pause)
    return time.monotonic() - began


def _cotenant(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "cotenant.cli.main", *arguments]


def _environ(environ: Mapping[str, str], folder: Path, spec: str) -> dict[str, str]:
    """Returns the user's environment without variables that would change the demo."""
    own = {name: value for name, value in without_slot(environ).items() if not name.startswith("COTENANT_")}
    own.update(COTENANT_HOME=str(folder), COTENANT_SIMULATE=spec)
    own["PATH"] = f"{os.path.dirname(sys.executable)}:{own.get('PATH', os.defpath)}"
    return own

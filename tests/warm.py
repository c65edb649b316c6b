"""Starts `cotenant` by a fork of a process that has imported it already.

A new Python takes 0.25 s of CPU time until a command does anything, and a server 1.1 s; a fork takes 0.02 s. The
fork is a process like any other: its own arguments, environment, folder, session and files. What cannot be had so is
what the dynamic loader does at the start of a program (LD_PRELOAD), and the start itself: tests of these call `cotenant`
as users do.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import cotenant

PACKAGE = Path(cotenant.__file__).parent
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        ".".join(("cotenant", *file.relative_to(PACKAGE).with_suffix("").parts))
        for folder in ("cli", "core", "hardware", "kube", "local", "observe", "signals", "simulate")
        for file in sorted((PACKAGE / folder).rglob("*.py"))
        if not file.stem.startswith("__")
    ]
)


AT_THE_START = ("LD_", "PYTHON", "LC_", "LANG")
"""What these variables say is read when a program starts, by the dynamic loader and by Python."""


def can_start(environment: Mapping[str, str]) -> bool:
    """Reports whether a fork does as well as a start, with this environment."""
    names = {*environment, *os.environ}
    return not any(
        environment.get(name) != os.environ.get(name) for name in names if name.startswith(AT_THE_START)
    )


Files = tuple[str, str, str]
"""The paths of standard input, output and errors; what is written is appended."""


class Process:
    """A fork of `cotenant`, with the methods of subprocess.Popen that tests need."""

    def __init__(
        self,
        words: Sequence[object],
        environment: Mapping[str, str],
        files: Files,
        cwd: Path | None = None,
        program: str = "cotenant",
    ) -> None:
        given = [program, *map(str, words)], dict(environment), str(cwd or Path.cwd()), files
        self._process = CONTEXT.Process(target=_become, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("cotenant", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    words: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    input: str = "",
    cwd: Path | None = None,
    timeout: float = 60,
    program: str = "cotenant",
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, like subprocess.run with text and captured output."""
    environment = os.environ if env is None else env
    if not can_start(environment):
        line = [sys.executable, "-c", f"import sys; sys.argv[0] = '{program}'; {CALL}", *map(str, words)]
        return subprocess.run(
            line,
            env=environment,
            input=input,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    with tempfile.TemporaryDirectory() as folder:
        given, output, errors = (Path(folder, name) for name in ("input", "output", "errors"))
        for file, content in ((given, input), (output, ""), (errors, "")):
            file.write_text(content)
        process = Process(words, environment, (str(given), str(output), str(errors)), cwd, program)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            [program, *map(str, words)], code, output.read_text(), errors.read_text()
        )


CALL = "from cotenant.cli.main import main; main()"


def _become(words: list[str], environment: Mapping[str, str], directory: str, files: Files) -> None:
    """Turns a fork into the command."""
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, path in enumerate(files):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.argv = words
    from cotenant.cli.main import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()

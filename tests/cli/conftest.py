"""The commands, called as users call them: by a script, or in front of a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator

import needs
import pytest

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "machine")


class Terminal:
    """A command as somebody in front of a terminal has it."""

    def __init__(self, words: list[str], environ: dict[str, str], columns: int, lines: int) -> None:
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (lines, columns))
        self.before = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(
            words,
            env=environ,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C arrives
        )
        self.seen = b""

    def until(self, text: bytes, seconds: float = 20.0, after: bytes = b"") -> None:
        end = time.monotonic() + seconds
        while text not in self.seen.partition(after)[2] if after else text not in self.seen:
            assert time.monotonic() < end, self.seen
            self.read(0.1)

    def read(self, seconds: float) -> bool:
        ready = bool(select.select([self.ours], [], [], seconds)[0])
        if ready:
            self.seen += os.read(self.ours, 65536)
        return ready

    def end(self) -> int:
        """Waits for the command's end and reads all that it wrote."""
        while self.process.poll() is None:
            self.read(0.1)
        while self.read(0.0):
            pass
        return self.process.returncode

    def text(self) -> str:
        """What was written, without the terminal's escape sequences."""
        return ESCAPES.sub("", self.seen.decode(errors="replace")).replace("\r\n", "\n")

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def resize(self, columns: int, lines: int = 40) -> None:
        termios.tcsetwinsize(self.ours, (lines, columns))

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL) if self.process.poll() is None else None
        self.process.wait()
        os.close(self.theirs)
        os.close(self.ours)


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    """Runs a command in a terminal of its own."""
    opened: list[Terminal] = []

    def start(words: list[str], environ: dict[str, str], columns: int = 140, lines: int = 40) -> Terminal:
        opened.append(Terminal(words, {"TERM": "xterm", **environ}, columns, lines))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()

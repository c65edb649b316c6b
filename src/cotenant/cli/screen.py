"""Takes over the terminal for a live view: alternate screen, keys without echo, and the way back."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from types import FrameType, TracebackType
from typing import Self

import click

from cotenant.cli import terminal
from cotenant.core.errors import CotenantError

ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""The alternate screen, without a cursor, empty."""
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, TO_END_OF_LINE, TO_END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
}
REST_OF_KEY = 0.05
"""Seconds in which the rest of a key's escape sequence has come, over a slow line too."""


class Screen:
    """The terminal while a live view has it. It is given back at the end, when an exception passes, and while
    the process is suspended by Ctrl-Z.
    """

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before = None if self._keys is None else termios.tcgetattr(self._keys)
        self._waker, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending = b""
        self._suspended = False

    def __enter__(self) -> Self:
        self._former = {
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._on_suspend),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, _resized),
        }
        self._wakeup = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        self._give_back()
        for number, handler in self._former.items():
            signal.signal(number, handler)
        os.close(self._waker)
        os.close(self._woken)

    def draw(self, lines: list[str]) -> None:
        """Replaces what is shown; lines are not wider than the terminal."""
        shown = [line if terminal.colours() else click.unstyle(line) for line in lines]
        self._write(HOME + f"{TO_END_OF_LINE}\r\n".join(shown) + TO_END_OF_LINE + TO_END_OF_SCREEN)

    def wait(self, seconds: float) -> str:
        """Waits for a key and returns it; empty if the time is over or the terminal was resized."""
        if not self._pending:
            watched = [self._waker] if self._keys is None else [self._waker, self._keys]
            ready = select.select(watched, [], [], max(0.0, seconds))[0]
            if self._waker in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._waker, 4096)
            if self._suspended:
                self._suspend()
                return ""
            if self._keys is None or self._keys not in ready:
                return ""
            self._pending = self._read()
        return self._next_key()

    def _read(self) -> bytes:
        assert self._keys is not None  # noqa: S101 -- only called after it was ready
        read = os.read(self._keys, 1024)
        if not read:  # the terminal is gone
            self._keys = None
        elif (
            read.endswith((b"\x1b", b"\x1b[", b"\x1bO"))
            and select.select([self._keys], [], [], REST_OF_KEY)[0]
        ):
            read += os.read(self._keys, 1024)
        return read

    def _next_key(self) -> str:
        typed = self._pending
        for sequence, name in KEYS.items():
            if typed.startswith(sequence):
                self._pending = typed[len(sequence) :]
                return name
        if typed.startswith(b"\x1b"):  # a key without meaning here: its letters are no keys
            self._pending = b""
            return ""
        self._pending = typed[1:]
        return typed[:1].decode("ascii", "replace")

    def _take(self) -> None:
        if self._before is not None and self._keys is not None:
            mode = [*self._before]
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(self._keys, termios.TCSADRAIN, mode)
        self._write(ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(CotenantError):  # a terminal that is gone needs nothing back
            self._write(LEAVE)
        if self._before is not None and self._keys is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._keys, termios.TCSAFLUSH, self._before)

    def _on_suspend(self, _number: int, _frame: FrameType | None) -> None:
        self._suspended = True  # done by `wait`: the signal may have come in the middle of a drawing

    def _suspend(self) -> None:
        self._suspended = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # until `fg`
        signal.signal(signal.SIGTSTP, self._on_suspend)
        self._take()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _resized(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do: the wake-up descriptor ends the wait, and the next drawing asks for the size."""

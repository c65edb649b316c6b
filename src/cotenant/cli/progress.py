"""Shows how far long work is, on standard error and only on a terminal."""

from __future__ import annotations

import shutil
import sys
import time

import click

from cotenant.cli import table, terminal


class ShownProgress:
    """Shows on standard error how far the work is, if that is a terminal."""

    def __init__(self) -> None:
        self.shown = sys.stderr is not None and sys.stderr.isatty() and not terminal.is_dumb()
        self._next = 0.0

    def __call__(self, done: float, what: str) -> None:
        now = time.monotonic()
        if self.shown and now >= self._next:
            self._next = now + 0.1
            part = f"{100 * done:3.0f} %  " if done else ""
            text = table.cut(table.printable(part + what), self._width)
            click.echo(f"\r{text:<{self._width}}", nl=False, err=True)

    def clear(self) -> None:
        if self.shown:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)

    @property
    def _width(self) -> int:
        return max(10, min(78, shutil.get_terminal_size().columns - 1))

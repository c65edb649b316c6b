"""Cleans up when a command is terminated by a signal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def unwind_on_signal() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into SystemExit, so that `finally` blocks run; Ctrl-C does so anyway."""
    former = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)

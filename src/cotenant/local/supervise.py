"""Waits for the command: forwards signals to it and returns its exit code."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

FORWARDED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGALRM,
    }
)
"""SIGTSTP and SIGCONT are not among them: they stop and continue the runner, and those of a terminal reach
the command too.
"""

_AWAITED = FORWARDED | {signal.SIGCHLD}
_SI_KERNEL = 0x80


def hold_signals() -> set[signal.Signals]:
    """Blocks the signals that will be forwarded; returns the former mask, which the command gets."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    return {signal.Signals(number) for number in before}


def supervise(pid: int, look: Callable[[], float] | None = None) -> int:
    """Returns the command's exit code as a shell does. Call hold_signals before the command is started.
    `look` is called now and then; it returns the seconds until the next time.
    """
    due = time.monotonic()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if look is None:
            arrived: signal.struct_siginfo | None = signal.sigwaitinfo(_AWAITED)
        else:
            if time.monotonic() >= due:
                due = time.monotonic() + look()
            arrived = signal.sigtimedwait(_AWAITED, max(0.0, due - time.monotonic()))
        if arrived is None or arrived.si_signo == signal.SIGCHLD:
            continue
        if arrived.si_code != _SI_KERNEL:  # the terminal's own signals have reached the command already
            os.kill(pid, arrived.si_signo)

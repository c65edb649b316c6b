"""Standing in for a command until it ends: signals go on to it, its exit code comes back."""

from __future__ import annotations

import os
import signal

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
"""Stop and continue are not among them: they stop and continue the runner, and a terminal's reach the
command too.
"""

_SI_KERNEL = 0x80


def hold_signals() -> set[signal.Signals]:
    """From now on signals wait to be forwarded; returns the mask of before, which the command shall have."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    return {signal.Signals(number) for number in before}


def supervise(pid: int) -> int:
    """The command's exit code as a shell tells it. Call hold_signals before the command is started."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        arrived = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if arrived.si_signo == signal.SIGCHLD:
            continue
        if arrived.si_code != _SI_KERNEL:  # the terminal's own signals have reached the command already
            os.kill(pid, arrived.si_signo)

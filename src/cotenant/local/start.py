"""Starts a command only after its process is recorded in the ledger.

The child is forked first and waits at a gate, a pipe. Its identity is recorded, then the gate opens and it
executes the command. If the runner dies before that, the pipe closes and the child exits without having run
anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from cotenant.core.errors import CommandNotFound, CotenantError, NotExecutable

_OPEN = b"1"
_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Gated(NamedTuple):
    """A forked child that waits to execute the command."""

    pid: int
    path: str
    gate: int
    report: int

    def open(self) -> None:
        """Lets the child execute the command; raises if it could not, and the child has exited then."""
        with contextlib.suppress(BrokenPipeError):  # it was killed at the gate: its status says so
            os.write(self.gate, _OPEN)
        os.close(self.gate)
        with open(self.report, "rb") as report:
            failure = report.read(4)
        if failure:
            os.waitpid(self.pid, 0)
            raise _refused(self.path, struct.unpack("<i", failure)[0])

    def abandon(self) -> None:
        """Lets the child exit without having run anything."""
        os.close(self.gate)
        os.close(self.report)
        os.waitpid(self.pid, 0)


def start_gated(
    path: str, arguments: Sequence[str], environ: Mapping[str, str], mask: Iterable[int], keep: int
) -> Gated:
    """Forks the child with this signal mask; it keeps the descriptor `keep`, by which it holds its slot."""
    gate, opener = os.pipe2(os.O_CLOEXEC)
    report, reporter = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(opener)
            if os.read(gate, 1) == _OPEN:
                os.set_inheritable(keep, True)
                _become(path, arguments, environ, mask)
        except OSError as error:
            os.write(reporter, struct.pack("<i", error.errno or errno.EIO))
        finally:
            os._exit(127)
    os.close(gate)
    os.close(reporter)
    return Gated(pid, path, opener, report)


def replace_process(path: str, arguments: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Executes the command in place of this process; raises if that is not possible."""
    try:
        _become(path, arguments, environ, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    except OSError as error:
        raise _refused(path, error.errno or errno.EIO) from None


def _become(path: str, arguments: Sequence[str], environ: Mapping[str, str], mask: Iterable[int]) -> NoReturn:
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    for number in _CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execve(path, list(arguments), dict(environ))  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # a script without #!, as shells do it
    os.execve("/bin/sh", ["sh", path, *arguments[1:]], dict(environ))  # noqa: S606


def _refused(path: str, number: int) -> CotenantError:
    reason = os.strerror(number)
    if number in (errno.ENOENT, errno.ENOTDIR):
        return CommandNotFound(f"{path} cannot be started: {reason}{_missing_interpreter(path)}")
    return NotExecutable(f"{path} cannot be started: {reason}")


def _missing_interpreter(path: str) -> str:
    """Names the script's interpreter: the file may exist while its interpreter does not."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!"):
            return f" (its first line asks for {first[2:].strip().decode(errors='replace')})"
    return ""

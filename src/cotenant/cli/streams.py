"""Guards the standard streams: output that cannot be written is an error, and no file takes their numbers."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from cotenant.core.errors import CotenantError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(CotenantError):
    """Standard output cannot be written: the disk is full, or it was closed."""


class ReaderGone(CotenantError):
    """The reader of the pipe has ended. As a shell reports it for other programs: 128 + SIGPIPE."""

    exit_code = 141


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ReaderGone("the reader of the output has ended") from None
        except OSError as error:
            raise OutputLost(f"the output could not be written: {error.strerror}") from None


class _Errors(io.FileIO):
    """Nobody can be told that messages cannot be written, and what they are about goes on."""

    def write(self, data: ReadableBuffer, /) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


def guard() -> None:
    """Replaces stdout and stderr by ones whose failures are errors for people.

    A stream that was closed (`>&-`) is occupied, so that no file of ours gets its number and a message never
    lands in the ledger. It fails when it is used, and commands that are started find it closed as before.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number else os.O_WRONLY)  # the lowest free number: this one
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Errors(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, like: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like is not None else "utf-8",
        errors="replace" if like is None or like.errors == "strict" else like.errors,
        line_buffering=raw.fileno() == 2 or raw.isatty(),
    )

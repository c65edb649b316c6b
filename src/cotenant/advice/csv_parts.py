"""Reads a large CSV file in several processes, each a part of it.

Python needs more than a microsecond for a row, and a month of samples every minute has twenty million of
them. Only plain UTF-8 files can be cut: of a gzip file nobody knows where the middle is.
"""

from __future__ import annotations

import codecs
import ctypes
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.advice.gathered import Progress
from cotenant.advice.text_lines import GZIP, LONGEST_LINE, STDIN, Block, part
from cotenant.core.errors import BadInput, CotenantError

if TYPE_CHECKING:
    from cotenant.advice.csv_file import Layout, Reader

LARGE = 96 << 20
"""Bytes from which on several processes are worth their start."""
MOST_PROCESSES = 8
_PR_SET_PDEATHSIG = 1
_MARKS = (GZIP, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def large(path: str) -> int | None:
    """Returns the size of a file that is to be read in parts; None if it is not."""
    if path == STDIN or _processes() < 2:
        return None
    try:
        file = Path(path)
        if not file.is_file() or (size := file.stat().st_size) < LARGE:
            return None
        with file.open("rb") as opened:
            head = opened.read(LONGEST_LINE)
        return None if head.startswith(_MARKS) or b"\n" not in head else size
    except OSError:
        return None


def _processes() -> int:
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)))


def read_parts(
    reader: Reader, path: str, size: int, *, skip_first: bool, progress: Progress | None = None
) -> None:
    """Reads the whole file into the reader."""
    workers = _processes()
    count = workers * 4
    edges = [size * number // count for number in range(count + 1)]
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), initializer=_end_with, initargs=(os.getpid(),)
    )
    done = False
    # An interrupt is for this process alone: the others inherit that it is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        parts = [
            pool.submit(
                _read_part, path, begin, end, reader.layout, reader.unit, skip_first=skip_first and not begin
            )
            for begin, end in pairwise(edges)
        ]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        lines = 0
        for number, each in enumerate(parts):
            read, length = each.result()
            reader.absorb(read, lines)
            lines += length
            if progress is not None:
                progress((number + 1) / count, f"{reader.samples:,} rows of {path}")
        done = True
    except BrokenProcessPool:
        raise CotenantError(
            f"from-csv: a process that read {path} was killed: is there too little memory?"
        ) from None
    except OSError as error:
        raise BadInput(f"from-csv: cannot read {path!r}: {error.strerror or error}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # Who interrupts does not wait for what is being read: the others end with this process.
        pool.shutdown(wait=done, cancel_futures=True)


def _end_with(parent: int) -> None:
    """Ends this process with the one that started it, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _read_part(
    path: str, begin: int, end: int, layout: Layout, unit: str, *, skip_first: bool
) -> tuple[Reader, int]:
    """Reads the lines that begin between two bytes; returns them and how many lines they are."""
    from cotenant.advice.csv_file import Reader

    reader, lines = Reader(layout, unit), 0
    for block in part(path, begin, end):
        number, text = block
        lines = number - 1 + text.count("\n")
        if not begin and number == 1:
            text = text.removeprefix("\ufeff")
            head = len(text) - len(text.lstrip("\n"))
            if skip_first:
                head = text.find("\n", head) + 1 or len(text)
            number, text = number + text.count("\n", 0, head), text[head:]
        reader.read(Block(number, text))
    return reader, lines

"""Reads text files, plain or gzip, UTF-8 or UTF-16: in blocks of lines, in little memory, or as a whole."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cotenant.core.errors import BadInput

BLOCK = 1 << 16
"""Bytes: what is made of a block should stay in the processor's cache."""
LONGEST_LINE = 1 << 16
GZIP = b"\x1f\x8b"
STDIN = "-"
_ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""PowerShell writes UTF-16 where `>` redirects a program's output."""


class Block(NamedTuple):
    first: int
    """The number of its first line, from 1."""
    text: str
    """Whole lines, each ended by a line feed, but perhaps the last of the file."""


def blocks(path: str, field: str) -> Iterator[Block]:
    """Yields the file in blocks. BadInput names the option `field`, the file and the remedy."""
    with _opened(path, field) as (file, name):
        yield from _decoded(file, field, name)


def whole(path: str, field: str, most: int) -> str:
    """Returns the text of a file that has at most `most` bytes, whatever its lines are."""
    with _opened(path, field) as (file, name):
        data = file.read(most + 1)
        if len(data) > most:
            raise BadInput(f"{field}: {name} is larger than {most >> 20} MiB: use a part of it")
    return data.decode(_ENCODINGS.get(data[:2], "utf-8"), "backslashreplace").removeprefix("\ufeff")


@contextlib.contextmanager
def _opened(path: str, field: str) -> Iterator[tuple[BinaryIO, str]]:
    """Opens a file, or standard input, and names it."""
    name = name_of(path)
    try:
        if path == STDIN:
            yield _unzipped(sys.stdin.buffer), name
            return
        with Path(path).open("rb") as file:
            yield _unzipped(file), name
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{field}: {name} is not a whole gzip file ({error}): fetch it again") from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise BadInput(f"{field}: cannot read {path!r}: {said or error}") from None


def name_of(path: str) -> str:
    """Returns what messages call the file."""
    return "standard input" if path == STDIN else Path(path).name


def part(path: str, begin: int, end: int) -> Iterator[Block]:
    """Yields the lines of a plain UTF-8 file that begin at or after byte `begin` and before byte `end`.

    Numbers of lines begin with 1. OSError if it cannot be read.
    """
    with Path(path).open("rb") as file:
        if begin:
            file.seek(begin - 1)
            file.readline()
        first = 1
        while (at := file.tell()) < end:
            data = file.read(min(BLOCK, end - at))
            if not data.endswith(b"\n"):
                data += file.readline(LONGEST_LINE * 4)
            if not data:
                return
            text = data.decode("utf-8", "backslashreplace")
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            yield Block(first, text)
            first += text.count("\n")


def _unzipped(file: BinaryIO) -> BinaryIO:
    peek = getattr(file, "peek", None)  # a pipe cannot be read twice
    if peek is not None and peek(2)[:2] == GZIP:
        return gzip.open(file)  # type: ignore[return-value]  # it is read as any file
    return file


def _decoded(file: BinaryIO, field: str, name: str) -> Iterator[Block]:
    data = file.read(BLOCK)
    encoding = _ENCODINGS.get(data[:2], "utf-8")
    # What is no text stays apart from other names, and can be printed.
    decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")
    first, rest, begun = 1, "", False
    while data:
        rest += decoder.decode(data)
        if not begun and rest:
            rest, begun = rest.removeprefix("\ufeff"), True
        if "\r" in rest[:-1]:
            # A carriage return at the very end may be half of a line end.
            last = "\r" if rest.endswith("\r") else ""
            rest = rest.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n") + last
        end = rest.rfind("\n") + 1
        if len(rest) - end > LONGEST_LINE:
            line = first + rest.count("\n")
            raise BadInput(
                f"{field}: {name} line {line} is longer than {LONGEST_LINE} characters: is it a CSV file?"
            )
        if end:
            yield Block(first, rest[:end])
            first, rest = first + rest.count("\n", 0, end), rest[end:]
        data = file.read(BLOCK)
    rest = (rest + decoder.decode(b"", final=True)).replace("\r\n", "\n").replace("\r", "\n")
    if rest:
        yield Block(first, rest)

"""Reads a trace of requests from a CSV file, gzip or plain.

Two forms, told apart by their header: `timestamp[,service_seconds]` (the header may be left out), and
that of the Azure LLM inference traces, `TIMESTAMP,ContextTokens,GeneratedTokens`. Timestamps are seconds
or ISO 8601.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from cotenant.core.errors import BadInput
from cotenant.simulate.scaling.workload import LARGEST, Workload

LONGEST_LINE = 4096
LONGEST_SERVICE = 86_400.0
LONGEST_TRACE = 366 * 86_400.0
LARGEST_NUMBER = 1e11
"""Seconds. Since 1970 they are in the year 5138; milliseconds since 1970 are more."""
MOST_TOKENS = 1e8
GZIP = b"\x1f\x8b"

TIMESTAMP, SERVICE = "timestamp", "service_seconds"
TOKENS = ("contexttokens", "generatedtokens")
FORMS = "timestamp[,service_seconds] or TIMESTAMP,ContextTokens,GeneratedTokens"


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload as it was recorded, and whether its service times are seconds."""

    workload: Workload
    timed: bool
    """Whether service times are seconds. Otherwise they are relative (tokens), or all the same."""
    form: str


def tokens_to_work(context: float, generated: float) -> float:
    """Estimates a request's work from its tokens; reading one costs a tenth of writing one."""
    return context / 10 + generated + 5


def read_trace(path: str) -> Trace:
    """Reads a whole trace; what is wrong with it is said with file, line and field."""
    name = Path(path).name
    try:
        with Path(path).open("rb") as file:
            if file.peek(2).startswith(GZIP):  # a pipe cannot be read twice
                with gzip.open(file) as unzipped:
                    return _parse(name, unzipped)  # type: ignore[arg-type]  # it reads lines as a file does
            return _parse(name, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"trace: {name} is not a whole gzip file ({error}): fetch it again") from None
    except OSError as error:
        raise BadInput(f"trace: cannot read {path}: {error.strerror or error}") from None


def _parse(name: str, file: BinaryIO) -> Trace:
    lines = _lines(name, file)
    first = next(lines, None)
    if first is None:
        raise BadInput(f"trace: {name} is empty: its lines are {FORMS}")
    number, fields = first
    columns = [each.lower() for each in fields]
    if TIMESTAMP in columns:
        place = columns.index(TIMESTAMP)
        work = _work_of(name, columns)
    else:
        if not _is_moment(fields[0]):
            raise BadInput(
                f"trace: {name} line {number}: no column `timestamp` in {', '.join(fields)[:80]!r}: the "
                f"columns are {FORMS}, separated by commas"
            )
        if len(fields) > 2:
            raise BadInput(
                f"trace: {name} line {number}: {len(fields)} fields and no header: say what they are in "
                f"a first line: {FORMS}"
            )
        lines = _again(first, lines)
        place, work = 0, _service_in(1) if len(fields) > 1 else _Work((), lambda _: 1.0, timed=False)
    times, works = array("d"), array("d")
    for number, fields in lines:
        if len(fields) < len(columns):
            raise BadInput(
                f"trace: {name} line {number}: {len(fields)} of {len(columns)} fields: complete or remove "
                "the line"
            )
        try:
            times.append(_moment(fields[place]))
            works.append(work.of(fields))
        except _BadField as error:
            raise BadInput(f"trace: {name} line {number}, field {error}") from None
        if len(times) > LARGEST:
            raise BadInput(f"trace: {name} has more than {LARGEST} requests: use a part of it")
    return Trace(_ordered(name, times, works), work.timed, "tokens" if work.fields == TOKENS else "seconds")


class _BadField(ValueError):
    """A field cannot be used; the message names it, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class _Work:
    """How a line's service time is found."""

    fields: tuple[str, ...]
    of: Callable[[list[str]], float]
    timed: bool


def _work_of(name: str, columns: list[str]) -> _Work:
    if SERVICE in columns:
        return _service_in(columns.index(SERVICE))
    if all(each in columns for each in TOKENS):
        context, generated = (columns.index(each) for each in TOKENS)
        return _Work(
            TOKENS,
            lambda fields: tokens_to_work(
                _number(fields[context], "ContextTokens", MOST_TOKENS),
                _number(fields[generated], "GeneratedTokens", MOST_TOKENS),
            ),
            timed=False,
        )
    if len(columns) > 1:
        raise BadInput(
            f"trace: {name} line 1: no column {SERVICE}, or ContextTokens and GeneratedTokens, in "
            f"{', '.join(columns)[:80]!r}: the columns are {FORMS}"
        )
    return _Work((), lambda _: 1.0, timed=False)


def _service_in(place: int) -> _Work:
    return _Work((SERVICE,), lambda fields: _number(fields[place], SERVICE, LONGEST_SERVICE), timed=True)


def _lines(name: str, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each line that is not blank."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise BadInput(
                f"trace: {name} line {number} is longer than {LONGEST_LINE} bytes: is it a CSV file?"
            )
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise BadInput(f"trace: {name} line {number} is not UTF-8 text: is it a CSV file?") from None
        if text:
            quoted = '"' in text  # few lines are, and a reader takes longer
            fields = next(csv.reader([text], skipinitialspace=True)) if quoted else text.split(",")
            yield number, [each.strip() for each in fields]


def _again(
    first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rest


def _number(text: str, field: str, largest: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _BadField(f"{field}: {text[:40]!r} is not a number: correct or remove the line") from None
    if not 0 <= value <= largest:
        raise _BadField(f"{field}: {text[:40]} is not between 0 and {largest:g}: correct or remove the line")
    return value


def _is_moment(text: str) -> bool:
    try:
        _moment(text)
    except _BadField:
        return False
    return True


def _moment(text: str) -> float:
    """Parses seconds, or ISO 8601; without a zone it is UTC."""
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise _BadField(
                f"{TIMESTAMP}: {text[:40]!r} is neither seconds nor ISO 8601 (2023-11-16 18:15:46.68): "
                "correct or remove the line"
            ) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(value) or abs(value) > LARGEST_NUMBER:
        raise _BadField(
            f"{TIMESTAMP}: {text[:40]} is not a time in seconds: timestamps are seconds, not milliseconds, "
            "or ISO 8601"
        )
    return value


def _ordered(name: str, times: array[float], works: array[float]) -> Workload:
    if not times:
        raise BadInput(f"trace: {name} has a header and no request: its lines are {FORMS}")
    first = min(times)
    if max(times) - first > LONGEST_TRACE:
        raise BadInput(
            f"trace: {name} goes over more than 366 days: timestamps are seconds, not milliseconds, or "
            "ISO 8601"
        )
    if any(after < before for before, after in pairwise(times)):
        pairs = sorted(zip(times, works, strict=True))
        times, works = array("d", [at for at, _ in pairs]), array("d", [work for _, work in pairs])
    return Workload(array("d", (at - first for at in times)), works)

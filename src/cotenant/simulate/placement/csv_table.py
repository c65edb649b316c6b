"""Reads CSV files by the names of their columns; what is wrong is said with file, line, column and remedy."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from cotenant.advice.text_lines import blocks, name_of
from cotenant.core.errors import BadInput
from cotenant.core.quantity import parse_quantity
from cotenant.core.units import check_unit, parse_bytes

MIB = 2**20
LARGEST_NUMBER = 10**9
MOST_BYTES = 2**50
"""More than any machine has: a larger figure is a mistake."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line, and where it stands."""

    option: str
    file: str
    line: int
    cells: dict[str, str]
    """By column, in lower case."""

    def text(self, *columns: str) -> str:
        """Returns the first of these columns that is there and not empty."""
        return next((self.cells[each] for each in columns if self.cells.get(each)), "")

    def has(self, column: str) -> bool:
        return bool(self.cells.get(column))

    def whole(self, column: str, most: int = LARGEST_NUMBER) -> int:
        """Returns a whole number; nothing counts as 0."""
        text = self.cells.get(column, "") or "0"
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            raise self.wrong(column, "is not a whole number")
        if int(text) > most:
            raise self.wrong(column, f"is more than {most}")
        return int(text)

    def seconds(self, column: str) -> float | None:
        """Returns a time in seconds; None if it is empty."""
        text = self.cells.get(column, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(column, "is not a number of seconds") from None
        if not 0 <= value <= 1e12:
            raise self.wrong(column, "is not a number of seconds between 0 and 1e12")
        return value

    def cpu(self) -> int:
        """Returns thousandths of a CPU from `cpu_milli`, or from `cpu` as Kubernetes writes it."""
        if self.has("cpu_milli") or not self.has("cpu"):
            return self.whole("cpu_milli")
        amount = parse_quantity(self.cells["cpu"])
        if amount is None or not 0 <= amount <= LARGEST_NUMBER:
            raise self.wrong("cpu", "is not an amount of CPU such as 4 or 500m")
        return ceil(Fraction(amount) * 1000)

    def memory(self) -> int:
        """Returns bytes from `memory_mib`, or from `memory` as Kubernetes writes it."""
        if self.has("memory_mib") or not self.has("memory"):
            return self.whole("memory_mib") * MIB
        return 0 if self.cells["memory"] == "0" else self.bytes("memory")

    def bytes(self, column: str) -> int:
        """Returns an amount such as 4Gi, 80GB or 4294967296."""
        text, field = self.cells[column], self.place(column)
        check_unit(text, field)
        amount = parse_bytes(text, field)
        if amount > MOST_BYTES:
            raise self.wrong(column, "is more memory than any machine has")
        return amount

    def place(self, column: str) -> str:
        return f"{self.option}: {self.file} line {self.line}, column {column}"

    def wrong(self, column: str, why: str) -> BadInput:
        found = self.cells.get(column, "")[:40]
        return BadInput(f"{self.place(column)}: {found!a} {why}: correct or remove the line")


def read_rows(path: str, option: str, needed: Sequence[Sequence[str]], most: int) -> Iterator[Row]:
    """Yields the rows of a file, plain or gzip, or of standard input for `-`.

    Of each of `needed`, one column must be there. `most` rows are read, and more refused.
    """
    name = name_of(path)
    columns: list[str] | None = None
    count = 0
    for line, fields in _lines(path, option, name):
        if columns is None:
            columns = _header(option, name, line, fields, needed)
            continue
        if len(fields) != len(columns):
            raise BadInput(
                f"{option}: {name} line {line}: {len(fields)} fields, and the first line names "
                f"{len(columns)} columns: complete or remove the line"
            )
        count += 1
        if count > most:
            raise BadInput(f"{option}: {name} has more than {most} lines: use a part of it")
        yield Row(option, name, line, dict(zip(columns, fields, strict=True)))
    if columns is None:
        raise BadInput(f"{option}: {name} is empty: its first line names the columns {_names(needed)}")


def _lines(path: str, option: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields number and fields of each line that is not blank. A field may not hold a line end."""
    for block in blocks(path, option):
        for number, line in enumerate(block.text.split("\n"), block.first):
            if line.strip():
                yield number, _fields(line, option, name, number)


def _fields(line: str, option: str, name: str, number: int) -> list[str]:
    if '"' not in line:
        return [each.strip() for each in line.split(",")]
    try:
        return [each.strip() for each in next(csv.reader([line], skipinitialspace=True, strict=True))]
    except csv.Error as error:
        raise BadInput(
            f"{option}: {name} line {number} is not CSV ({error}): close its quotes or remove the line"
        ) from None


def _header(
    option: str, name: str, line: int, fields: list[str], needed: Sequence[Sequence[str]]
) -> list[str]:
    columns = [each.lower() for each in fields]
    for choices in needed:
        if not any(each in columns for each in choices):
            raise BadInput(
                f"{option}: {name} line {line}: no column {' or '.join(choices)} in "
                f"{', '.join(fields)[:80]!a}: the first line names the columns {_names(needed)}, "
                "separated by commas"
            )
    twice = next((each for each in columns if columns.count(each) > 1), None)
    if twice is not None:
        raise BadInput(f"{option}: {name} line {line}: two columns {twice!a}: rename or remove one")
    return columns


def _names(needed: Sequence[Sequence[str]]) -> str:
    return ", ".join(" or ".join(choices) for choices in needed)

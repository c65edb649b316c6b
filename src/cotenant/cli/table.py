"""Draws tables and bars that fit the terminal; the terminal's abilities are in `terminal.py`."""

from __future__ import annotations

import json
import shlex
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from cotenant.cli import terminal

GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column and what becomes of it where the terminal is narrow."""

    name: str
    rank: int = 0
    """The column of the highest rank is left out first; 0 is never left out."""
    least: int | None = None
    """It may be cut to this number of characters; None: it is never cut."""
    wraps: bool = False
    """Only for the last column: it goes on in the next line instead of being cut."""


class Cell(NamedTuple):
    """A coloured text of a table."""

    text: str
    colour: str | None = None


class Fitted(NamedTuple):
    """A table as lines, and the columns that had no room."""

    lines: list[str]
    left_out: list[Column]


def show_json(value: Any) -> None:
    click.echo(json_text(value), nl=False)


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def show(columns: Sequence[Column | str], rows: Sequence[Sequence[Cell | str]]) -> list[Column]:
    """Prints a table as wide as the terminal, or in full where the output is no terminal; returns the columns
    that had no room.
    """
    drawn = fit(columns, rows, terminal.width())
    for line in drawn.lines:
        click.echo(line)
    for line in hint(drawn.left_out, terminal.width()):
        click.echo(line)
    return drawn.left_out


def hint(left_out: Sequence[Column], width: int | None) -> list[str]:
    """Says which columns a narrow terminal does not show; bars have no name and need none."""
    names = dict.fromkeys(column.name for column in left_out if column.name)
    said = f"(no room for {', '.join(names)})" if names else ""
    return [click.style(line, dim=True) for line in textwrap.wrap(said, width or len(said) + 1)]


def fit(columns: Sequence[Column | str], rows: Sequence[Sequence[Cell | str]], width: int | None) -> Fitted:
    """Draws a table that is at most `width` wide: first columns are cut down to their least width, then those
    of the highest rank are left out. None: as wide as its content.
    """
    heads = [each if isinstance(each, Column) else Column(each) for each in columns]
    cells = [[_cell(each) for each in row] for row in rows]
    natural = [
        max([_wide(head.name), *(_wide(row[at].text) for row in cells)]) for at, head in enumerate(heads)
    ]
    kept = list(range(len(heads)))
    if width is None:
        widths = natural
    else:
        least = [
            size if head.least is None else min(size, max(head.least, _wide(head.name)))
            for head, size in zip(heads, natural, strict=True)
        ]
        while _total(least, kept) > width and (spare := [at for at in kept if heads[at].rank]):
            kept.remove(max(spare, key=lambda at: heads[at].rank))
        widths = _stretch(least, natural, kept, width)
    lines = [_styled(line, width) for line in _head(heads, kept, widths)]
    for row in cells:
        lines += [_styled(line, width) for line in _row(heads, row, kept, widths)]
    return Fitted(lines, [head for at, head in enumerate(heads) if at not in kept])


def bar(parts: Sequence[tuple[int, str]], total: int, width: int = 24) -> str:
    """Draws amounts as parts of a bar, each with its character; an amount above zero gets at least one."""
    drawn = ""
    for amount, sign in parts:
        cells = min(width - len(drawn), max(1, round(amount * width / total))) if amount > 0 and total else 0
        drawn += sign * cells
    return drawn + signs()["free"] * (width - len(drawn))


def signs() -> dict[str, str]:
    """Chooses the characters of a bar; ASCII where the output cannot encode others."""
    if terminal.encodes("█▒·…"):
        return {"used": "█", "granted": "▒", "outside": "x", "free": "·", "cut": "…"}
    return {"used": "#", "granted": "=", "outside": "x", "free": ".", "cut": "..."}


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def command_line(words: Sequence[str], width: int = 40) -> str:
    """Quotes a command line as typed, on one line, cut to `width`."""
    text = " ".join(shlex.join(words).split())
    return text if len(text) <= width else text[: width - 3] + "..."


def printable(text: str) -> str:
    """Replaces what a terminal would act on: texts come from nodes, containers and pods of others."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def cut(text: str, width: int) -> str:
    """Cuts a text that is wider, with a sign that it goes on."""
    if _wide(text) <= width:
        return text
    mark = signs()["cut"]
    mark = mark if len(mark) < width else ""
    kept, used = "", len(mark)
    for sign in text:
        used += _wide(sign)
        if used > width:
            break
        kept += sign
    return kept + mark


class _Piece(NamedTuple):
    text: str
    colour: str | None = None
    bold: bool = False


def _head(heads: Sequence[Column], kept: Sequence[int], widths: Sequence[int]) -> list[list[_Piece]]:
    return [[_Piece(_padded(heads[at].name, widths[at]), bold=True) for at in kept]]


def _row(
    heads: Sequence[Column], row: Sequence[Cell], kept: Sequence[int], widths: Sequence[int]
) -> list[list[_Piece]]:
    last = kept[-1]
    if not (heads[last].wraps and _wide(row[last].text) > widths[last]):
        return [[_Piece(_padded(cut(row[at].text, widths[at]), widths[at]), row[at].colour) for at in kept]]
    first, *rest = textwrap.wrap(row[last].text, widths[last], break_on_hyphens=False) or [""]
    front = [_Piece(_padded(cut(row[at].text, widths[at]), widths[at]), row[at].colour) for at in kept[:-1]]
    blank = [_Piece(" " * widths[at]) for at in kept[:-1]]
    colour = row[last].colour
    return [[*front, _Piece(first, colour)], *([*blank, _Piece(text, colour)] for text in rest)]


def _styled(line: Sequence[_Piece], width: int | None) -> str:
    """Joins the pieces; what is beyond the width, in a terminal too narrow for any table, is cut off."""
    pieces = list(line)
    while pieces and not pieces[-1].text.strip():
        pieces.pop()
    drawn: list[str] = []
    room = width
    for number, piece in enumerate(pieces):
        text = piece.text.rstrip() if number == len(pieces) - 1 else piece.text
        gap = GAP if number else ""
        if room is not None:
            if room <= len(gap):
                break
            text = cut(text, room - len(gap))
            room -= len(gap) + _wide(text)
        plain = not (piece.bold or piece.colour) or not text.strip()
        drawn.append(gap + (text if plain else click.style(text, fg=piece.colour, bold=piece.bold or None)))
    return "".join(drawn)


def _stretch(least: Sequence[int], natural: Sequence[int], kept: Sequence[int], width: int) -> list[int]:
    """Gives the room that is left to the columns that are cut, the shortest of them first."""
    widths = list(least)
    spare = max(0, width - _total(widths, kept))
    wanting = sorted((at for at in kept if natural[at] > widths[at]), key=lambda at: natural[at])
    while wanting:
        at = wanting.pop(0)
        more = min(natural[at] - widths[at], spare // (len(wanting) + 1))
        widths[at] += more
        spare -= more
    return widths


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[at] for at in kept) + len(GAP) * (len(kept) - 1)


def _cell(value: Cell | str) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    return Cell(printable(cell.text), cell.colour)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _wide(text))


def _wide(text: str) -> int:
    """The number of a terminal's columns; Chinese characters and the like take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )

"""Prints plain tables and bars; a terminal adds only colours."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click


def show_json(value: Any) -> None:
    click.echo(json_text(value), nl=False)


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; columns are as wide as their content, the last one is not padded."""
    plain = [header, *([click.unstyle(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in plain) for at in range(len(header))]
    lines = [[click.style(cell, bold=True) for cell in header], *rows]
    for texts, line in zip(plain, lines, strict=True):
        cells = [cell + " " * (widths[at] - len(texts[at])) for at, cell in enumerate(line)]
        click.echo("  ".join(cells).rstrip())


def bar(parts: Sequence[tuple[int, str]], total: int, width: int = 24) -> str:
    """Draws amounts as parts of a bar, each with its character; an amount above zero gets at least one."""
    drawn = ""
    for amount, sign in parts:
        cells = min(width - len(drawn), max(1, round(amount * width / total))) if amount > 0 and total else 0
        drawn += sign * cells
    return drawn + signs()["free"] * (width - len(drawn))


def signs() -> dict[str, str]:
    """Chooses the characters of a bar; ASCII where the output cannot encode others."""
    try:
        "█▒░·".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return {"used": "#", "granted": "=", "outside": "x", "free": "."}
    return {"used": "█", "granted": "▒", "outside": "x", "free": "·"}


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
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= width else text[: width - 3] + "..."

"""Finds out what standard output can show: its width, colours, characters, and whether it can be redrawn."""

from __future__ import annotations

import os
import shutil
import sys

FALLBACK = (80, 24)
"""Columns and lines of a terminal that does not say how large it is."""


def width() -> int | None:
    """Columns of the terminal; None if the output is a file or a pipe: it gets everything."""
    return shutil.get_terminal_size(FALLBACK).columns if is_terminal() else None


def size() -> tuple[int, int]:
    """Columns and lines of the terminal as they are now, also after it was resized."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return FALLBACK
    return columns or FALLBACK[0], lines or FALLBACK[1]


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def is_dumb() -> bool:
    """Whether the terminal can only be written to line by line."""
    return os.environ.get("TERM", "") in ("", "dumb", "unknown")


def colours() -> bool:
    """Whether the terminal shows colours, and its user wants them (https://no-color.org)."""
    return is_terminal() and not is_dumb() and not os.environ.get("NO_COLOR")


def encodes(text: str) -> bool:
    """Whether the output's encoding has these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True

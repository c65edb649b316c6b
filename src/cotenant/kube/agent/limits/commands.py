"""Reads the command of a process, to name it to people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_LONGEST = 40
"""Characters of a command: its program chooses them."""


def command_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Returns the program's name as it was started, else the kernel's name of it; `?` if it has ended.
    Characters that could confuse a terminal are left out.
    """
    for name, end in (("cmdline", b"\0"), ("comm", b"\n")):
        try:
            with open(proc / str(pid) / name, "rb") as file:
                first = file.read(4096).split(end, 1)[0]
        except OSError:
            continue
        text = first.decode(errors="replace").rsplit("/", 1)[-1]
        shown = "".join(each for each in text if each.isprintable())[:_LONGEST]
        if shown.strip():
            return shown
    return "?"


def commands_of(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[int, str]:
    return {pid: command_of(pid, proc) for pid in pids}

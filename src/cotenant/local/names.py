"""Checks the names of jobs, makes them unique, and derives one from the command if none is given."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence

from cotenant.core.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_INTERPRETER = re.compile(r"(python|pypy|bash|sh|dash|zsh|node|ruby|perl)[0-9.]*", re.ASCII)


def check(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"name: {name[:80]!a} is not valid: take up to 63 letters, digits, '.', '_' and '-'")
    return name


def from_command(command: Sequence[str]) -> str:
    """Derives a name: `train` from `python -u train.py --lr 1`, `serve` from `/opt/bin/serve`."""
    name = os.path.basename(command[0])
    if _INTERPRETER.fullmatch(name):
        script = _script(command[1:])
        name = os.path.splitext(os.path.basename(script))[0] if script else name
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:48]
    return name or "job"


def unique(name: str, taken: Collection[str]) -> str:
    """Returns the name if it is free, else adds a number."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _script(arguments: Sequence[str]) -> str | None:
    """Finds the script or module that an interpreter is given; None for `-c` and the like."""
    for at, argument in enumerate(arguments):
        if argument == "-m" and at + 1 < len(arguments):
            return arguments[at + 1].split(".", maxsplit=1)[0]
        if argument in ("-c", "-e", "-"):
            return None
        if not argument.startswith("-"):
            return argument
    return None

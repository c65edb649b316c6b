"""Names of jobs: short, unique on the machine, and told by the command if nobody gave one."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence

from cotenant.core.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_INTERPRETER = re.compile(r"(python|pypy|bash|sh|dash|zsh|node|ruby|perl)[0-9.]*", re.ASCII)


def check(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"name: {name[:80]!a} is not a name: take up to 63 letters, digits, '.', '_' and '-'")
    return name


def from_command(command: Sequence[str]) -> str:
    """`python -u train.py --lr 1` is `train`, `/opt/bin/serve` is `serve`."""
    name = os.path.basename(command[0])
    if _INTERPRETER.fullmatch(name):
        script = _script(command[1:])
        name = os.path.splitext(os.path.basename(script))[0] if script else name
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:48]
    return name or "job"


def unique(name: str, taken: Collection[str]) -> str:
    """The name itself if it is free, else with a number behind it."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _script(arguments: Sequence[str]) -> str | None:
    """The script or module an interpreter is given; nothing for `-c` and the like."""
    for at, argument in enumerate(arguments):
        if argument == "-m" and at + 1 < len(arguments):
            return arguments[at + 1].split(".", maxsplit=1)[0]
        if argument in ("-c", "-e", "-"):
            return None
        if not argument.startswith("-"):
            return argument
    return None

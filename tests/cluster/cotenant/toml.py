"""Settings files for the processes under test."""

import json
from collections.abc import Mapping
from typing import Any

Tree = Mapping[str, Any]


def write(settings: Tree) -> str:
    return "\n".join(_lines(settings, ())) + "\n"


def over(base: Tree, changes: Tree) -> dict[str, Any]:
    """`base` with `changes` laid over it, section by section."""
    result = dict(base)
    for key, value in changes.items():
        below = result.get(key)
        result[key] = (
            over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
        )
    return result


def _lines(section: Tree, path: tuple[str, ...]) -> list[str]:
    plain = [
        f"{key} = {json.dumps(value)}" for key, value in section.items() if not isinstance(value, Mapping)
    ]
    lines = [f"[{'.'.join(path)}]", *plain] if path else plain
    for key, value in section.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, key))
    return lines

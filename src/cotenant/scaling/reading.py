"""Reads a specification from YAML or JSON and reports every fault, each with its field and its remedy.

msgspec alone stops at the first fault, knows no remedies, and does not guess what a misspelt name means.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from cotenant.core.errors import BadInput
from cotenant.scaling.fields import Kind, kind_of, kinds_of

T = TypeVar("T", bound=msgspec.Struct)

MOST_PROBLEMS = 10
_SHOWN = 80
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def read_specification(kind: type[T], data: object, field: str = "spec") -> T:
    """Returns the specification, or raises BadInput with one line for each fault."""
    problems: list[str] = []
    read = _struct(kind, data, field, problems)
    if problems:
        hidden = len(problems) - MOST_PROBLEMS
        lines = problems[:MOST_PROBLEMS] + ([f"and {hidden} more"] if hidden > 0 else [])
        raise BadInput("\n".join(lines))
    assert isinstance(read, kind)  # noqa: S101
    return read


def _struct(kind: type[msgspec.Struct], data: object, path: str, problems: list[str]) -> object:
    if not isinstance(data, dict):
        names = ", ".join(kinds_of(kind))
        problems.append(f"{path}: {_show(data)} is not an object: give its fields: {names}")
        return None
    known, before = kinds_of(kind), len(problems)
    values: dict[str, object] = {}
    for key, value in data.items():
        if key not in known:
            problems.append(f"{path}.{_cut(key)}: there is no such field: {_near(key, known)}")
        elif value is not None:  # YAML's `field:` with nothing after it is an absent field, as in Kubernetes
            name, inner, _ = known[key]
            values[name] = _value(inner, value, f"{path}.{key}", problems)
    for key, (_, _, required) in known.items():
        if required and data.get(key) is None:
            problems.append(f"{path}.{key}: this field is required")
    if len(problems) > before:
        return None
    try:
        return kind(**values)
    except BadInput as error:
        problems.extend(_placed(line, path, known) for line in str(error).splitlines())
        return None


def _placed(line: str, path: str, known: dict[str, Any]) -> str:
    """Puts the path before a sentence that a Struct says of itself: of one of its fields, or of all."""
    name = line.partition(":")[0].split(".")[0].split("[")[0]
    return f"{path}.{line}" if name in known else f"{path}: {line}"


def _near(key: object, known: dict[str, Any]) -> str:
    near = get_close_matches(str(key)[:_SHOWN], known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _value(kind: Kind, value: Any, path: str, problems: list[str]) -> object:
    if kind.struct is not None:
        return _struct(kind.struct, value, path, problems)
    before = len(problems)
    read = _read(kind, value, path, problems)
    if len(problems) == before:
        problems.extend(_bounds(kind, value, path))
    return read


def _read(kind: Kind, value: Any, path: str, problems: list[str]) -> object:
    hint, origin = kind.hint, get_origin(kind.hint)
    if origin is Literal:
        if value not in get_args(hint):
            problems.append(f"{path}: {_show(value)} is not one of {', '.join(map(str, get_args(hint)))}")
        return value
    if origin is tuple:
        item = kind_of(get_args(hint)[0])
        if not isinstance(value, list | tuple):
            problems.append(f"{path}: {_show(value)} is not a list")
            return ()
        return tuple(_value(item, each, f"{path}[{at}]", problems) for at, each in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            problems.append(f"{path}: {_show(value)} is not an object")
            return {}
        inside = kind_of(get_args(hint)[1])
        return {key: _value(inside, each, f"{path}.{key}", problems) for key, each in value.items()}
    if hint is Any:
        return value
    return _scalar(kind, value, path, problems)


def _scalar(kind: Kind, value: Any, path: str, problems: list[str]) -> object:
    hint, examples = kind.hint, kind.bound("examples")
    fits: dict[type, Callable[[Any], bool]] = {
        str: lambda each: isinstance(each, str),
        bool: lambda each: isinstance(each, bool),
        int: lambda each: isinstance(each, int) and not isinstance(each, bool),
        float: lambda each: isinstance(each, int | float) and not isinstance(each, bool),
    }
    if not fits[hint](value):
        number = hint is str and isinstance(value, int | float) and not isinstance(value, bool)
        remedy = f': put it in quotes: "{value}"' if number else ""
        if examples:
            remedy = f": write it like {', '.join(map(str, examples))}"
        problems.append(f"{path}: {_show(value)} is not {_WORDS[hint]}{remedy}")
    return value


def _bounds(kind: Kind, value: Any, path: str) -> list[str]:
    if isinstance(value, str | tuple | list | dict):
        size, least, most = len(value), kind.bound("min_length") or 0, kind.bound("max_length")
        unit = "characters" if isinstance(value, str) else "entries"
        if size < least:
            return [f"{path}: {_show(value)} has {size} {unit}; it needs at least {least}"]
        if most is not None and size > most:
            return [f"{path}: it has {size} {unit}; at most {most} are allowed"]
        pattern = kind.bound("pattern")
        if isinstance(value, str) and pattern is not None and not re.search(pattern, value):
            return [f"{path}: {_show(value)} does not match {pattern}"]
        return []
    least, most = kind.bound("ge"), kind.bound("le")
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        return [f"{path}: {_show(value)} is not from {least} to {most}"]
    return []


def _cut(key: object) -> str:
    return str(key)[:_SHOWN].encode("unicode_escape").decode()


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

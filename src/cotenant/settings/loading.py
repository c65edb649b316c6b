"""Loads settings from a TOML file and from environment variables, which win.

`COTENANT__LINE__PATIENCE=90s` is the `patience` of `[line]`. Two underscores keep it apart from the variables
that Kubernetes sets for a Service named cotenant (COTENANT_PORT). Every mistake is reported at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from cotenant.core.errors import BadInput
from cotenant.core.units import check_unit, parse_bytes, parse_duration
from cotenant.settings.declaring import Duration, Range, Size

S = TypeVar("S")

PREFIX = "COTENANT__"


class _EnvText(str):
    """A value from the environment, where everything is text."""

    __slots__ = ()


def load_settings(
    kind: type[S],
    file: Path | None,
    environ: Mapping[str, str],
    unknown: Callable[[str], None] | None = None,
) -> S:
    """Loads the settings of a process. Raises BadInput that names every wrong field.

    With `unknown`, a whole section that this process does not know is reported to it and ignored: one file
    serves processes with different parts, and of different versions during an upgrade. A name that is
    nearly that of a known section is still a mistake.
    """
    try:
        data = {} if file is None else tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"settings: {file} cannot be read: {error}") from None
    return read_settings(kind, data, environ, unknown)


def read_settings(
    kind: type[S],
    data: Mapping[str, Any],
    environ: Mapping[str, str],
    unknown: Callable[[str], None] | None = None,
) -> S:
    """Does the same, given the content of a file. `kind` is the dataclass with all sections."""
    problems: list[str] = []
    tree = _over(data, environ, problems)
    if unknown is not None:
        known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
        others = [key for key in tree if _is_for_others(key, tree[key], known)]
        for key in others:
            del tree[key]
            unknown(key)
    settings = _section(tree, kind, (), problems)
    if problems:
        raise BadInput("settings: " + "\n          ".join(problems))
    assert isinstance(settings, kind)  # noqa: S101 - it is, unless there was a problem
    return settings


def _over(data: Mapping[str, Any], environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    tree = _copy(data)
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        *sections, key = name.removeprefix(PREFIX).lower().split("__")
        place: Any = tree
        for section in sections:
            place = place.setdefault(section, {}) if isinstance(place, dict) else None
        if isinstance(place, dict) and not isinstance(place.get(key), dict):
            place[key] = _EnvText(environ[name])
        else:
            problems.append(f"{name}: this is not the name of a setting")
    return tree


def _is_for_others(key: str, value: Any, known: list[str]) -> bool:
    return isinstance(value, dict) and key not in known and not get_close_matches(key, known, 1)


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in data.items()}


def _section(data: Mapping[str, Any], kind: type[Any], path: tuple[str, ...], problems: list[str]) -> object:
    hints = get_type_hints(kind, include_extras=True)
    known = {each.name: hints[each.name] for each in fields(kind)}
    values: dict[str, Any] = {}
    before = len(problems)
    for key, value in data.items():
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            problems.append(f"{_field((*path, key), value)}: there is no such setting: {hint}")
            continue
        try:
            values[key] = _value(value, known[key], (*path, key), problems)
        except BadInput as error:
            problems.append(str(error))
    if len(problems) > before:
        return None
    try:
        return kind(**values)
    except BadInput as error:
        problems.append(".".join((*path, str(error))))
        return None


def _value(value: Any, hint: Any, path: tuple[str, ...], problems: list[str]) -> object:
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise BadInput(f"{_field(path, value)}: this is a section: give the settings in it")
        return _section(value, hint, path, problems)
    name = _field(path, value)
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    for mark in marks:
        if isinstance(mark, Duration):
            seconds = parse_duration(_text(value, name, "60s"), name)
            if seconds < mark.least:
                raise BadInput(f"{name}: {_show(value)} is less than {mark.least:g}s")
            return seconds
        if isinstance(mark, Size):
            size = _text(value, name, "256Mi")
            if mark.may_be_zero and size.strip() == "0":
                return 0
            check_unit(size, name)
            return parse_bytes(size, name)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise BadInput(f"{name}: {_show(value)} is not one of {', '.join(get_args(hint))}")
        return str(value)
    result = _READ[hint](value, name)
    for mark in marks:
        if isinstance(mark, Range) and not mark.least <= result <= mark.most:
            raise BadInput(f"{name}: {_show(value)} is not from {mark.least} to {mark.most}")
    return result


def _text(value: Any, name: str, example: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f'{name}: {_show(value)} is not a text: write it like "{example}"')
    return str(value)


def _bool(value: Any, name: str) -> bool:
    if isinstance(value, _EnvText) and value in {"true", "false"}:
        return value == "true"
    if not isinstance(value, bool):
        raise BadInput(f"{name}: {_show(value)} is neither true nor false")
    return value


def _int(value: Any, name: str) -> int:
    if (
        isinstance(value, _EnvText)
        and value.isascii()
        and value.removeprefix("-").isdigit()
        and len(value) < 20
    ):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{name}: {_show(value)} is not a whole number")
    return value


def _str(value: Any, name: str) -> str:
    return _text(value, name, "a text")


def _texts(value: Any, name: str) -> tuple[str, ...]:
    parts = (
        [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, _EnvText) else value
    )
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise BadInput(f'{name}: {_show(value)} is not a list of texts: write it like ["one", "two"]')
    return tuple(parts)


_READ: dict[Any, Callable[[Any, str], Any]] = {bool: _bool, int: _int, str: _str, tuple[str, ...]: _texts}


def _field(path: tuple[str, ...], value: object) -> str:
    """Names the field as it was written: in the file or in the environment."""
    return PREFIX + "__".join(path).upper() if isinstance(value, _EnvText) else ".".join(path)


def _show(value: object) -> str:
    text = ascii(str(value) if isinstance(value, _EnvText) else value)
    return text if len(text) <= 80 else f"{text[:80]}..."

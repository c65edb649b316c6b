"""Prints every setting with its default and its explanation, as a TOML file that can be loaded."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from cotenant.core.units import format_bytes
from cotenant.settings.declaring import Duration, Size


def settings_reference(settings: Any) -> str:
    """Renders these settings as TOML; each is explained by the docstring below its field."""
    return "\n".join(_section(settings, ())) + "\n"


def explanations(kind: type[Any]) -> dict[str, str]:
    """Collects the docstrings of fields; a section without one is explained by its class."""
    hints = get_type_hints(kind)
    found = {name: inspect.getdoc(hint) or "" for name, hint in hints.items() if is_dataclass(hint)}
    for each in reversed(kind.__mro__):
        if each.__module__ != "types" and is_dataclass(each):
            found |= written_explanations(each)
    return found


@cache
def written_explanations(kind: type[Any]) -> Mapping[str, str]:
    """Returns the docstrings that stand below the fields of this class itself. Cached: to find the source of
    a class, its whole file is parsed.
    """
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # composed at run time, so it has no source
        return {}
    tree = ast.parse(textwrap.dedent(source)).body[0]
    if not isinstance(tree, ast.ClassDef):
        return {}
    return {
        line.target.id: inspect.cleandoc(str(below.value.value))
        for line, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _section(section: Any, path: tuple[str, ...]) -> Iterator[str]:
    told = explanations(type(section))
    hints = get_type_hints(type(section), include_extras=True)
    own = [each.name for each in fields(section) if not is_dataclass(getattr(section, each.name))]
    for name in own:
        yield from textwrap.wrap(told[name], 100, initial_indent="# ", subsequent_indent="# ")
        yield f"{name} = {_toml(getattr(section, name), hints[name])}"
    for each in fields(section):
        inner = getattr(section, each.name)
        if is_dataclass(inner):
            yield ""
            yield from textwrap.wrap(told[each.name], 100, initial_indent="# ", subsequent_indent="# ")
            yield f"[{'.'.join((*path, each.name))}]"
            yield from _section(inner, (*path, each.name))


def _toml(value: Any, hint: Any) -> str:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if any(isinstance(mark, Duration) for mark in marks):
        return f'"{_duration(value)}"'
    if any(isinstance(mark, Size) for mark in marks):
        return f'"{format_bytes(value)}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(each, str) for each in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds > size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"

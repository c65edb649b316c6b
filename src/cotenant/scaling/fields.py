"""Lists the fields of a specification with their explanations, types and bounds.

The CustomResourceDefinition and its page in docs/ are made of it, so that both say what `reading.py` checks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from cotenant.scaling.durations import Span
from cotenant.settings.reference import written_explanations


@dataclass(frozen=True, slots=True)
class Kind:
    """A type without `None` and without marks, and the bounds that its marks set."""

    hint: Any
    bounds: tuple[msgspec.Meta, ...] = ()
    span: Span | None = None
    """Of a text that is a duration."""

    @property
    def struct(self) -> type[msgspec.Struct] | None:
        """The type, if it is an object with known fields."""
        return self.hint if isinstance(self.hint, type) and issubclass(self.hint, msgspec.Struct) else None

    def bound(self, name: str) -> Any:
        """The bound of that name of msgspec.Meta (`ge`, `max_length`, ...); None if there is none."""
        return next((found for each in self.bounds if (found := getattr(each, name)) is not None), None)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a specification, by the name that it has in YAML."""

    name: str
    kind: Kind
    explanation: str
    required: bool
    default: Any
    """None where there is none."""


def kind_of(hint: Any) -> Kind:
    """Takes a type hint apart."""
    if get_origin(hint) in {Union, UnionType}:
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is not Annotated:
        return Kind(hint)
    hint, *marks = get_args(hint)
    bounds = tuple(mark for mark in marks if isinstance(mark, msgspec.Meta))
    return Kind(hint, bounds, next((mark for mark in marks if isinstance(mark, Span)), None))


@cache
def kinds_of(kind: type[msgspec.Struct]) -> dict[str, tuple[str, Kind, bool]]:
    """Returns the fields by their names in YAML: the attribute, its type, and whether it must be given.

    Cached: a thousand scalers are read when a server begins to lead.
    """
    hints = get_type_hints(kind, include_extras=True)
    return {
        each.encode_name: (each.name, kind_of(hints[each.name]), each.required)
        for each in msgspec.structs.fields(kind)
    }


def fields_of(kind: type[msgspec.Struct]) -> Iterator[Field]:
    """Yields the fields: those that must be given first, and what a type adds before what it inherits."""
    hints, told = get_type_hints(kind, include_extras=True), explanations(kind)
    own = {
        name: at
        for at, base in enumerate(kind.__mro__)
        for name in reversed(vars(base).get("__annotations__", {}))
    }
    for each in sorted(msgspec.structs.fields(kind), key=lambda field: (not field.required, own[field.name])):
        default = None if each.default is msgspec.NODEFAULT else each.default
        yield Field(each.encode_name, kind_of(hints[each.name]), told[each.name], each.required, default)


def explanations(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Returns the docstrings below the fields, on one line each; also those of the types it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            found |= {name: " ".join(text.split()) for name, text in written_explanations(each).items()}
    return found


def explanation(kind: type[msgspec.Struct]) -> str:
    """Returns what a type says of itself, on one line."""
    return " ".join((inspect.getdoc(kind) or "").split())

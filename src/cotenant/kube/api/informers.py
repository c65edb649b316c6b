"""Shares one watch per kind among all parts of a process, and keeps only the fields that they declare.

The author of an object may write as much as the API server takes. A pod may bring 256 KiB of annotations, and
as many labels and variables: in memory that is thirty times as much, and a hundred such pods would exhaust a
server whose memory is limited. So of such fields only the union of what parts declared is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from cotenant.kube.api.client import EVERYTHING, Client, Selection
from cotenant.kube.api.objects import HasMeta
from cotenant.kube.api.resources import Resource
from cotenant.kube.api.watcher import Watcher

T = TypeVar("T", bound=HasMeta)


class Fields(Protocol[T]):
    """Says what to keep of an object; `|` is the union."""

    def __or__(self, other: Self, /) -> Self: ...

    def keep(self, object: T, /) -> T: ...


@dataclass(frozen=True)
class Need(Generic[T]):
    """Declares that a part watches a kind, and what it needs of each object."""

    resource: Resource[T]
    fields: Fields[T] | None = None
    """None: everything that we decode of it."""
    selection: Selection = EVERYTHING
    """All parts of a process must agree on it: there is one watch of a kind."""


class Informers:
    """The watches that these needs call for, one a kind."""

    def __init__(self, client: Client, needs: Iterable[Need[Any]]) -> None:
        by_kind: dict[str, list[Need[Any]]] = {}
        for need in needs:
            by_kind.setdefault(_kind(need.resource), []).append(need)
        self._watchers = {kind: _shared(client, needs) for kind, needs in by_kind.items()}

    def __getitem__(self, resource: Resource[T]) -> Watcher[T]:
        """Returns the one watch of a kind; LookupError if no part declared that it needs it."""
        try:
            return cast("Watcher[T]", self._watchers[_kind(resource)])
        except KeyError:
            raise LookupError(f"{resource.plural}: no part declares that it needs them") from None

    def __iter__(self) -> Iterator[Watcher[Any]]:
        return iter(self._watchers.values())


def _kind(resource: Resource[Any]) -> str:
    return f"{resource.group}/{resource.plural}"


def _shared(client: Client, needs: list[Need[T]]) -> Watcher[T]:
    selections = {need.selection for need in needs}
    if len(selections) > 1:
        raise ValueError(f"{needs[0].resource.plural}: parts select different objects: {selections}")
    declared = [need.fields for need in needs if need.fields is not None]
    keep = reduce(or_, declared).keep if len(declared) == len(needs) else None
    return Watcher(client, replace(needs[0].resource, keep=keep), needs[0].selection)

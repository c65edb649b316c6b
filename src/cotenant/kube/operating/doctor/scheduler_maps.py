"""The configurations of schedulers that are kept in ConfigMaps.

Anybody who has a namespace can write one, so what is in it is not trusted to be one, nor to be small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

from cotenant.kube.api.objects import Generic
from cotenant.kube.operating.doctor.facts import NAME

KIND = "KubeSchedulerConfiguration"
_LONGEST = 64 * 2**10
"""Characters; they are a few thousand, and reading takes its time."""


def place(namespace: str, name: str, key: str) -> str:
    return f"configmap {namespace}/{name}: {key}"


def parts(place_: str) -> tuple[str, str, str]:
    """Namespace, name and key."""
    at, _, key = place_.removeprefix("configmap ").partition(": ")
    namespace, _, name = at.partition("/")
    return namespace, name, key


def configurations(
    maps: Iterable[Generic], unread: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """By where they stand. One that names us and cannot be read is told to `unread`."""
    for each in maps:
        for key, text in each.data.items():
            if KIND not in str(text):
                continue
            where = place(each.metadata.namespace, each.metadata.name, key)
            try:
                documents = read(text)
            except ValueError as error:
                if "cotenant" in text:
                    unread(f"{where}: {error}")
                continue
            yield from ((where, found) for found in documents if is_configuration(found))


def own_places(maps: Iterable[Generic], namespace: str) -> Iterator[str]:
    """Those of this installation: what they should say is known."""
    for each in maps:
        if is_own(each, namespace):
            yield from (place(namespace, each.metadata.name, key) for key in each.data)


def is_own(found: Generic, namespace: str) -> bool:
    return found.metadata.namespace == namespace and found.metadata.labels.get(NAME) == "cotenant"


def read(text: str) -> list[Any]:
    """The documents of a text. ValueError, whatever is wrong with it."""
    if len(text) > _LONGEST:
        raise ValueError(f"it is longer than {_LONGEST} characters")
    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(f"it cannot be read: {first}") from None


def is_configuration(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == KIND

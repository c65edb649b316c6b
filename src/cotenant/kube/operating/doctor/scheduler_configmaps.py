"""Reads the configurations of schedulers from ConfigMaps.

Everybody who has a namespace can write a ConfigMap, so its content may be anything, of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

from cotenant.kube.api.objects import Generic
from cotenant.kube.operating.doctor.facts import NAME

KIND = "KubeSchedulerConfiguration"
_LONGEST = 64 * 2**10
"""Characters. Usual ones have a few thousand, and reading YAML is slow."""


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
    """Configurations with their places. One that names Cotenant and cannot be read is passed to `unread`."""
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
    """Places of this installation's own configurations: what they should say is known."""
    for each in maps:
        if is_own(each, namespace):
            yield from (place(namespace, each.metadata.name, key) for key in each.data)


def is_own(found: Generic, namespace: str) -> bool:
    return found.metadata.namespace == namespace and found.metadata.labels.get(NAME) == "cotenant"


def read(text: str) -> list[Any]:
    """The YAML documents of a text. Raises ValueError, whatever is wrong with it."""
    if len(text) > _LONGEST:
        raise ValueError(f"it is longer than {_LONGEST} characters")
    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(f"it cannot be read: {first}") from None


def is_configuration(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == KIND

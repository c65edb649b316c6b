"""Writes the data of a ConfigMap or a Secret that is ours: creates it, or changes what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import AlreadyExists, Conflict, NotFound
from cotenant.kube.api.objects import HasMeta
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import Resource

LABELS = {"app.kubernetes.io/name": "cotenant"}
_ATTEMPTS = 8
"""Tries of one write against others that write the same."""


class _HasData(HasMeta, Protocol):
    @property
    def data(self) -> Mapping[str, str]: ...


async def write_data(
    client: Client,
    resource: Resource[Any],
    name: str,
    namespace: str,
    data: Mapping[str, str],
    rest: Mapping[str, str] | None = None,
    may_write: Callable[[], object] = lambda: None,
) -> bool:
    """Returns whether it had to be written. Keys that are not ours stay as they are. `rest` are other fields
    of a new object; `may_write` is called before each write, and raises if it must not happen.
    """
    for _ in range(_ATTEMPTS):
        try:
            found: _HasData = await client.get(resource, name, namespace)
            changes = {key: text for key, text in data.items() if found.data.get(key) != text}
            if not changes:
                return False
            may_write()
            await client.merge_patch(resource, name, {"data": changes}, namespace, guard=Guard.of(found))
        except Conflict:
            continue
        except NotFound:
            body = {"metadata": {"name": name, "labels": LABELS}, **(rest or {}), "data": data}
            try:
                may_write()
                await client.create(resource, body, namespace)
            except AlreadyExists:
                continue
        return True
    raise Conflict(f"{resource.plural} {namespace}/{name}: other writers change it all the time")

"""An API server's memory, for tests of what is read and written: guards count, names are taken once."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.kube.api.client import EVERYTHING, Listing, Selection
from cotenant.kube.api.errors import AlreadyExists, Conflict, Forbidden, NotFound
from cotenant.kube.api.patches import Guard, Operation
from cotenant.kube.api.resources import Resource

Object = dict[str, Any]


class FakeApi:
    """Plays `cotenant.kube.api.client.Client`."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.paths: dict[str, Any] = {}
        self.writes: list[str] = []
        self.forbidden: set[str] = set()
        """Plural names of what may not be read."""
        self._versions = itertools.count(1)

    def put(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str = "") -> Object:
        """As somebody would who may do everything."""
        made = copy.deepcopy(dict(body))
        meta = made.setdefault("metadata", {})
        key = (resource.plural, namespace, meta["name"])
        if namespace:
            meta["namespace"] = namespace
        meta.setdefault("uid", f"uid-of-{'-'.join(key)}")
        meta["resourceVersion"] = str(next(self._versions))
        self.objects[key] = made
        return made

    def raw(self, resource: Resource[Any], name: str, namespace: str = "") -> Object:
        return self.objects[(resource.plural, namespace, name)]

    async def get(
        self, resource: Resource[Any], name: str, namespace: str | None = None, *, within: float | None = None
    ) -> Any:
        self._may_read(resource)
        return self._read(resource, self._found(resource, name, namespace))

    async def get_path(self, path: str, type: type[Any], *, within: float | None = None) -> Any:
        if path not in self.paths:
            raise NotFound(path)
        told = self.paths[path]
        if isinstance(told, Exception):
            raise told
        return msgspec.convert(told() if callable(told) else told, type)

    async def list(self, resource: Resource[Any], selection: Selection = EVERYTHING) -> Listing[Any]:
        self._may_read(resource)
        wanted = dict(part.split("=", 1) for part in selection.labels.split(",") if part)
        found = [
            self._read(resource, each)
            for (plural, namespace, _), each in self.objects.items()
            if plural == resource.plural
            and selection.namespace in {None, namespace}
            and wanted.items() <= (each["metadata"].get("labels") or {}).items()
        ]
        return Listing(found, "1")

    async def create(
        self, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None = None
    ) -> Any:
        name = body["metadata"]["name"]
        if (resource.plural, namespace or "", name) in self.objects:
            raise AlreadyExists(name)
        self.writes.append(f"create {resource.plural} {name}")
        return self._read(resource, self.put(resource, body, namespace or ""))

    async def merge_patch(
        self,
        resource: Resource[Any],
        name: str,
        changes: Mapping[str, Any],
        namespace: str | None = None,
        *,
        guard: Guard,
    ) -> Any:
        found = self._guarded(resource, name, namespace, guard)
        self.writes.append(f"patch {resource.plural} {name}")
        return self._read(resource, self.put(resource, _merged(found, changes), namespace or ""))

    async def json_patch(
        self,
        resource: Resource[Any],
        name: str,
        operations: Sequence[Operation],
        namespace: str | None = None,
        *,
        guard: Guard,
    ) -> Any:
        found = self._guarded(resource, name, namespace, guard)
        self.writes.append(f"patch {resource.plural} {name}")
        changed = _patched(found, operations)
        return self._read(resource, self.put(resource, changed, namespace or ""))

    async def delete(
        self, resource: Resource[Any], name: str, namespace: str | None = None, *, guard: Guard
    ) -> None:
        self._guarded(resource, name, namespace, guard)
        self.writes.append(f"delete {resource.plural} {name}")
        del self.objects[(resource.plural, namespace or "", name)]

    def _may_read(self, resource: Resource[Any]) -> None:
        if resource.plural in self.forbidden:
            raise Forbidden(f"{resource.plural}: not allowed")

    def _found(self, resource: Resource[Any], name: str, namespace: str | None) -> Object:
        found = self.objects.get((resource.plural, namespace or "", name))
        if found is None:
            raise NotFound(f"{resource.plural} {name}: not found")
        return found

    def _guarded(self, resource: Resource[Any], name: str, namespace: str | None, guard: Guard) -> Object:
        found = self._found(resource, name, namespace)
        meta = found["metadata"]
        assert guard.uid, "every write says which object it means"
        assert guard.resource_version, "and in which state"
        if (guard.uid, guard.resource_version) != (meta["uid"], meta["resourceVersion"]):
            raise Conflict(f"{resource.plural} {name}: it has changed")
        return found

    @staticmethod
    def _read(resource: Resource[Any], found: Object) -> Any:
        return resource.decode(msgspec.json.encode(found))


def _merged(before: Any, changes: Any) -> Any:
    """RFC 7386."""
    if not isinstance(changes, Mapping):
        return changes
    after = dict(before) if isinstance(before, Mapping) else {}
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _merged(after.get(key), value)
    return after


def _patched(before: Object, operations: Sequence[Operation]) -> Object:
    """RFC 6902, as far as it is used: `add` and `replace`."""
    after = copy.deepcopy(before)
    for step in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at: Any = after
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = step["value"]
    return after

"""An API server in memory that plays `cotenant.kube.api.client.Client`, with faults by verb and kind.

It keeps the rules that our code relies on: a resourceVersion changes with every write, a guard that does not
fit is a Conflict, a name is taken once, a Binding gives node and annotations or neither, a pod that is evicted
stays until somebody deletes it. Everything else a test says itself, by a fate for the next requests or a standing
failure.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from cotenant.kube.api.client import EVERYTHING, NOT_GUARDED, Listing, Selection
from cotenant.kube.api.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound, Unreachable
from cotenant.kube.api.patches import Guard, Operation
from cotenant.kube.api.resources import PODS, Resource

Json = dict[str, Any]
Act = Callable[[], None]


class Key(NamedTuple):
    kind: str
    """The plural, such as `pods`."""
    namespace: str
    name: str


class Call(NamedTuple):
    verb: str
    """`get`, `list`, `create`, `patch`, `apply`, `delete`, `bind`, `evict`; `may evict` for a dry run."""
    kind: str
    name: str


@dataclass
class FakeApi:
    """The objects, what was asked, and what becomes of the next requests."""

    fully_guarded: bool = True
    """Whether every write must say which object it means, and in which state."""
    objects: dict[Key, Json] = field(default_factory=dict, repr=False)
    paths: dict[str, Any] = field(default_factory=dict)
    """What other paths answer: a value, a function that makes it, or the error."""
    fates: dict[str, list[Fate]] = field(default_factory=dict)
    """By verb (`bind`) or verb and kind (`get secrets`), for the next requests in order; a request without one is
    carried out and answered.
    """
    fails: dict[str, Exception] = field(default_factory=dict)
    """By the same, for every request until it is taken out."""
    calls: list[Call] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    """Those that were carried out, as `verb kind name`."""
    applied: list[Json] = field(default_factory=list)
    """The bodies of server-side applies, in order."""
    turns: Callable[[], int] = lambda: 1
    """How often others get their turn within a request."""
    leaves: Callable[[], str] = lambda: "2040-01-01T00:00:00Z"
    """By when a pod that is evicted now has ended."""
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    # What a test does and sees, past all faults.

    def put(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str = "") -> Json:
        """Creates or replaces an object."""
        made: Json = copy.deepcopy(dict(body))
        meta = made.setdefault("metadata", {})
        key = Key(resource.plural, namespace, meta["name"])
        if namespace:
            meta["namespace"] = namespace
        meta["uid"] = meta.get("uid") or f"uid-of-{'-'.join(key)}"
        meta["resourceVersion"] = str(next(self._versions))
        self.objects[key] = made
        self._changed(key, made)
        return made

    def remove(self, resource: Resource[Any], name: str, namespace: str = "") -> Json:
        key = Key(resource.plural, namespace, name)
        removed = self.objects.pop(key)
        self._removed(key, removed)
        return removed

    def raw(self, resource: Resource[Any], name: str, namespace: str = "") -> Json:
        """The object itself: what a test changes in it, nobody is told."""
        return self.objects[Key(resource.plural, namespace, name)]

    def read(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        """The object as the client returns it."""
        return _typed(resource, self.raw(resource, name, namespace))

    def has(self, resource: Resource[Any], name: str, namespace: str = "") -> bool:
        return Key(resource.plural, namespace, name) in self.objects

    def all(self, resource: Resource[Any]) -> dict[str, Json]:
        """By name; for kinds of which a test has one namespace."""
        return {key.name: body for key, body in self.objects.items() if key.kind == resource.plural}

    def forbid(self, kind: str) -> None:
        """What may not be read."""
        for verb in ("get", "list"):
            self.fails[f"{verb} {kind}"] = Forbidden(f"{kind}: not allowed")

    def asked(self, verb: str) -> list[str]:
        """The names for which it was asked, in order."""
        return [call.name for call in self.calls if call.verb == verb]

    def count(self, verb: str) -> int:
        return len(self.asked(verb))

    def written(self, kind: str) -> int:
        """How many writes to objects of this kind were carried out."""
        return sum(write.split()[1] == kind for write in self.writes)

    # The verbs of the client.

    async def get(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        subresource: str = "",
        within: float | None = None,
    ) -> Any:
        await self._meet("get", resource, name, lambda: None)
        return _typed(resource, self._found(resource, name, namespace))

    async def get_path(
        self, path: str, type: type[Any], *, within: float | None = None, limit: int | None = None
    ) -> Any:
        if path not in self.paths:
            raise NotFound(path)
        told = self.paths[path]
        if isinstance(told, Exception):
            raise told
        return msgspec.convert(told() if callable(told) else told, type)

    async def list(
        self, resource: Resource[Any], selection: Selection = EVERYTHING, **_: object
    ) -> Listing[Any]:
        await self._meet("list", resource, "", lambda: None)
        wanted = dict(part.split("=", 1) for part in selection.labels.split(",") if "=" in part)
        found = [
            _typed(resource, each)
            for key, each in self.objects.items()
            if key.kind == resource.plural
            and selection.namespace in {None, key.namespace}
            and wanted.items() <= (each["metadata"].get("labels") or {}).items()
        ]
        return Listing(found, "1")

    async def create(
        self,
        resource: Resource[Any],
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        within: float | None = None,
    ) -> Any:
        name = body["metadata"]["name"]

        def act() -> None:
            if self.has(resource, name, namespace or ""):
                raise AlreadyExists(name, code=409)
            self._write("create", resource, body, namespace)

        await self._meet("create", resource, name, act)
        return _typed(resource, self._found(resource, name, namespace))

    async def merge_patch(
        self,
        resource: Resource[Any],
        name: str,
        changes: Mapping[str, Any],
        namespace: str | None = None,
        *,
        guard: Guard = NOT_GUARDED,
        strategic: bool = False,
        **_: object,
    ) -> Any:
        def act() -> None:
            found = self._guarded(resource, name, namespace, guard)
            merged = _merged(found, changes, strategic=strategic)
            if not strategic or merged != found:
                self._write("patch", resource, merged, namespace)

        await self._meet("patch", resource, name, act)
        return _typed(resource, self._found(resource, name, namespace))

    async def json_patch(
        self,
        resource: Resource[Any],
        name: str,
        operations: Sequence[Operation],
        namespace: str | None = None,
        *,
        guard: Guard = NOT_GUARDED,
        **_: object,
    ) -> Any:
        def act() -> None:
            found = self._guarded(resource, name, namespace, guard)
            self._write("patch", resource, _patched(found, operations), namespace)

        await self._meet("patch", resource, name, act)
        return _typed(resource, self._found(resource, name, namespace))

    async def apply(
        self,
        resource: Resource[Any],
        body: Mapping[str, Any],
        manager: str,
        namespace: str | None = None,
        **_: object,
    ) -> Any:
        name = body["metadata"]["name"]

        def act() -> None:
            before = self.objects.get(Key(resource.plural, namespace or "", name))
            self.applied.append(copy.deepcopy(dict(body)))
            self._write("apply", resource, _merged(before or {}, body), namespace)

        await self._meet("apply", resource, name, act)
        return _typed(resource, self._found(resource, name, namespace))

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        guard: Guard = NOT_GUARDED,
        **_: object,
    ) -> None:
        def act() -> None:
            self._guarded(resource, name, namespace, guard)
            self.writes.append(f"delete {resource.plural} {name}")
            self.remove(resource, name, namespace or "")

        await self._meet("delete", resource, name, act)

    async def bind(
        self,
        name: str,
        namespace: str,
        node: str,
        *,
        guard: Guard,
        annotations: Mapping[str, str] | None = None,
        within: float = 5.0,
    ) -> None:
        def act() -> None:
            found = self._guarded(PODS, name, namespace, guard)
            if found["spec"].get("nodeName"):
                raise Conflict("already assigned", code=409)
            bound = {"spec": {"nodeName": node}, "metadata": {"annotations": dict(annotations or {})}}
            self._write("bind", PODS, _merged(found, bound), namespace)

        await self._meet("bind", PODS, name, act)

    async def evict(
        self, name: str, namespace: str, *, guard: Guard, dry_run: bool = False, within: float = 5.0
    ) -> None:
        def act() -> None:
            found = self._guarded(PODS, name, namespace, guard)
            if not dry_run and "deletionTimestamp" not in found["metadata"]:
                leaving = {"metadata": {"deletionTimestamp": self.leaves()}}
                self._write("evict", PODS, _merged(found, leaving), namespace)

        await self._meet("may evict" if dry_run else "evict", PODS, name, act)

    async def _meet(self, verb: str, resource: Resource[Any], name: str, act: Act) -> None:
        """Carries a request out, or does with it what the test wants."""
        self.calls.append(Call(verb, resource.plural, name))
        for _ in range(self.turns()):
            await asyncio.sleep(0)
        for which in (f"{verb} {resource.plural}", verb):
            if which in self.fails:
                raise self.fails[which]
            if self.fates.get(which):
                await self.fates[which].pop(0)(self, act)
                return
        act()

    def _write(
        self, verb: str, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None
    ) -> None:
        self.writes.append(f"{verb} {resource.plural} {body['metadata']['name']}")
        self.put(resource, body, namespace or "")

    def _found(self, resource: Resource[Any], name: str, namespace: str | None) -> Json:
        try:
            return self.objects[Key(resource.plural, namespace or "", name)]
        except KeyError:
            raise NotFound(
                f"{resource.plural} {'/'.join(filter(None, (namespace, name)))}: not found", code=404
            ) from None

    def _guarded(self, resource: Resource[Any], name: str, namespace: str | None, guard: Guard) -> Json:
        found = self._found(resource, name, namespace)
        if self.fully_guarded:
            assert guard.uid, "every write says which object it means"
            assert guard.resource_version, "and in which state"
        if not guard.fields().items() <= found["metadata"].items():
            raise Conflict(f"{resource.plural} {name}: it is another one, or has changed", code=409)
        return found

    def _changed(self, key: Key, body: Json) -> None:
        """For those who watch."""

    def _removed(self, key: Key, body: Json) -> None:
        """For those who watch."""


Fate = Callable[[Any, Act], Awaitable[None]]
"""What becomes of a request that would `act` on the FakeApi: it acts or not, answers or raises."""


def refused(error: KubeError) -> Fate:
    async def fate(api: FakeApi, act: Act) -> None:
        raise error

    return fate


def lost(*, before: bool = False) -> Fate:
    """No answer: it was carried out, or (`before`) never arrived."""

    async def fate(api: FakeApi, act: Act) -> None:
        if not before:
            act()
        raise Unreachable("not in time", uncertain=True)

    return fate


def withheld(by: list[Callable[[], object]]) -> Fate:
    """No answer: it lies in a buffer, and arrives when somebody does what is found there."""

    async def fate(api: FakeApi, act: Act) -> None:
        by.append(act)
        raise Unreachable("not in time", uncertain=True)

    return fate


def after(do: Callable[[Any], None]) -> Fate:
    """Something happens just before it is carried out."""

    async def fate(api: FakeApi, act: Act) -> None:
        do(api)
        act()

    return fate


def hangs(until: asyncio.Event, then: Fate | None = None) -> Fate:
    async def fate(api: FakeApi, act: Act) -> None:
        await until.wait()
        if then is None:
            act()
        else:
            await then(api, act)

    return fate


def _typed(resource: Resource[Any], body: Json) -> Any:
    return resource.decode(msgspec.json.encode(body))


def _merged(before: Any, changes: Any, *, strategic: bool = False) -> Any:
    """RFC 7386; `strategic`: items of lists, which are conditions, are merged by their type."""
    if strategic and isinstance(changes, list):
        by_type = {each["type"]: each for each in before or ()}
        for each in changes:
            by_type[each["type"]] = _merged(by_type.get(each["type"]), each)
        return list(by_type.values())
    if not isinstance(changes, Mapping):
        return changes
    merged = dict(before) if isinstance(before, Mapping) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, strategic=strategic)
    return merged


def _patched(before: Json, operations: Sequence[Operation]) -> Json:
    """RFC 6902, as far as it is used: `add`, `replace` and `remove` of keys, `replace` in lists."""
    patched = copy.deepcopy(before)
    for step in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at: Any = patched
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        place: Any = int(last) if isinstance(at, list) else last
        if step["op"] == "remove":
            del at[place]
        else:
            assert step["op"] == "replace" or not isinstance(at, list), "not played here"
            at[place] = copy.deepcopy(step["value"])
    return patched

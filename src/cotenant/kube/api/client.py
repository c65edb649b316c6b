"""Calls the Kubernetes API: get, list, watch, create, patch, apply, delete, bind, evict, with typed objects.

Reads are retried within their time limit. A write is retried only if it was surely not carried out (there was
no connection, or the server replied that it is overloaded). Otherwise its error is `uncertain`, and the
caller must read before it undoes anything. A call never lasts longer than its limit, `within`, in seconds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.connection import Call, Connection, ConnectionSettings
from cotenant.kube.api.errors import Gone, TooLong
from cotenant.kube.api.objects import HasMeta
from cotenant.kube.api.patches import Guard, Operation
from cotenant.kube.api.resources import PODS, Page, Resource, decode
from cotenant.kube.api.watch_stream import BOOKMARK, WatchEvent, events

T = TypeVar("T")
W = TypeVar("W", bound=HasMeta)
PAGE = 500
"""Objects in one page: about 3 MB of pods, so that neither side holds a whole big list as text."""
PAGE_BYTES = 16 << 20
"""Bytes that a page may have. Authors may make objects of more than 1 MB, and 500 of them would exhaust a
process whose memory is limited: a longer page is read again as smaller ones.
"""
_STARTS = 3
"""How often a list is begun page by page, if pages expire before they are read."""
NOT_GUARDED = Guard()


@dataclass(frozen=True)
class Listing(Generic[T]):
    items: list[T]
    resource_version: str
    """The version that the list shows; a watch from here reports every later change."""


@dataclass(frozen=True)
class Selection:
    """Selects objects of a kind; all of them by default."""

    namespace: str | None = None
    labels: str = ""
    """As `kubectl -l`: `app=web,tier!=db`."""
    fields: str = ""
    """As `--field-selector`: `spec.nodeName=n1`."""

    def query(self) -> dict[str, str]:
        both = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in both.items() if value}


EVERYTHING = Selection()


@dataclass
class Client:
    """A client of one API server. Use it as `async with Client(access) as client`."""

    access: Access
    settings: ConnectionSettings = field(default_factory=ConnectionSettings)
    random: Random = field(default_factory=Random, repr=False)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._connection = Connection(self.access, self.settings, random=self.random, clock=self.clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    async def get(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        subresource: str = "",
        within: float | None = None,
    ) -> T:
        """Reads the newest state, confirmed by a quorum of etcd."""
        asked, path = (
            _asked("get", resource, namespace, name, subresource),
            resource.path(namespace, name, subresource),
        )
        return resource.decode(await self._read(asked, path, {}, within))

    async def get_path(
        self, path: str, type: type[T], *, within: float | None = None, limit: int | None = None
    ) -> T:
        """Reads any other path, such as `/version`, `/readyz` or what a pod serves. Undecodable if the body
        is longer than `limit` bytes: not everybody who answers is trusted.
        """
        call = Call(f"get {path}", "GET", path, repeatable=True, within=within, limit=limit)
        return decode(msgspec.json.Decoder(type), await self._connection.request(call), path)

    async def fetch(
        self, path: str, query: Mapping[str, str], *, within: float | None = None, limit: int | None = None
    ) -> bytes:
        """Reads what a Service serves, through the API server's proxy. Not retried: the caller knows whether
        the Service will answer later.
        """
        return await self._read(f"get {path}", path, query, within, limit=limit, retry=False)

    async def list(
        self,
        resource: Resource[T],
        selection: Selection = EVERYTHING,
        *,
        newest: bool = True,
        page: int = PAGE,
        retry: bool = True,
        within: float | None = None,
    ) -> Listing[T]:
        """Lists objects. `newest` requires a state confirmed by a quorum; otherwise the server answers from
        its cache, which is cheaper and may be old. `within` is for each page, of at most `page` objects. A
        page of more than PAGE_BYTES is read again with a quarter of the objects. If a page has expired before
        it is read, the list is begun again, at last in one piece. TooLong if that or one object is longer.
        """
        query, size, starts = {**selection.query(), "limit": str(page)}, page, 1
        if not newest:
            query = {**selection.query(), "resourceVersion": "0"}  # the cache ignores `limit`
        items: list[T] = []
        while True:
            try:
                found, length = await self._page(resource, selection, query, within, retry=retry)
            except TooLong:
                if "resourceVersion" in query:
                    query = {**selection.query(), "limit": str(size)}
                elif "limit" in query and size > 1:
                    size = max(1, size // 4)
                    query["limit"] = str(size)
                else:
                    raise
                continue
            except Gone:
                if "continue" not in query:
                    raise
                items, query, starts = [], selection.query(), starts + 1
                if starts <= _STARTS:
                    query["limit"] = str(size)
                continue
            items += found.items or ()
            if not found.metadata.continue_:
                return Listing(items, found.metadata.resource_version)
            if size < page and length * 8 <= PAGE_BYTES:
                size = min(page, size * 4)  # the long ones are behind us
                query["limit"] = str(size)
            query["continue"] = found.metadata.continue_

    async def _page(
        self,
        resource: Resource[T],
        selection: Selection,
        query: Mapping[str, str],
        within: float | None,
        *,
        retry: bool,
    ) -> tuple[Page[T], int]:
        """Returns a page and its length in bytes. Its text is not held while the next one is read."""
        asked, path = _asked("list", resource, selection.namespace), resource.path(selection.namespace)
        body = await self._read(asked, path, query, within, retry=retry, limit=PAGE_BYTES)
        return resource.decode_page(body), len(body)

    async def create(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        within: float | None = None,
    ) -> T:
        """Creates an object; `apiVersion` and `kind` are filled in."""
        name = body.get("metadata", {}).get("name", "")
        call = Call(
            asked=_asked("create", resource, namespace, name),
            method="POST",
            path=resource.path(namespace if resource.namespaced else None),
            body=_encode(resource, body),
            within=within,
        )
        return resource.decode(await self._connection.request(call))

    async def merge_patch(
        self,
        resource: Resource[T],
        name: str,
        changes: Mapping[str, Any],
        namespace: str | None = None,
        *,
        guard: Guard = NOT_GUARDED,
        subresource: str = "",
        retry: bool = True,
        within: float | None = None,
        strategic: bool = False,
    ) -> T:
        """Sets the fields in `changes`; None removes a field. A list replaces the existing one, unless the
        patch is `strategic`: then items with the same key (conditions: their `type`) are merged, all others
        stay, and `{"$patch": "delete", "type": ...}` removes one. Built-in kinds only.
        """
        call = Call(
            asked=_asked("patch", resource, namespace, name, subresource),
            method="PATCH",
            path=resource.path(namespace, name, subresource),
            body=msgspec.json.encode(guard.into(changes)),
            content_type=f"application/{'strategic-' if strategic else ''}merge-patch+json",
            retry=retry,
            within=within,
        )
        return resource.decode(await self._connection.request(call))

    async def json_patch(
        self,
        resource: Resource[T],
        name: str,
        operations: Sequence[Operation],
        namespace: str | None = None,
        *,
        guard: Guard = NOT_GUARDED,
        subresource: str = "",
        within: float | None = None,
    ) -> T:
        """Applies all operations or none of them."""
        call = Call(
            asked=_asked("patch", resource, namespace, name, subresource),
            method="PATCH",
            path=resource.path(namespace, name, subresource),
            body=msgspec.json.encode(guard.before(operations)),
            content_type="application/json-patch+json",
            within=within,
        )
        return resource.decode(await self._connection.request(call))

    async def apply(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        manager: str,
        namespace: str | None = None,
        *,
        force: bool = False,
        guard: Guard = NOT_GUARDED,
        subresource: str = "",
        within: float | None = None,
    ) -> T:
        """Server-side apply: sets these fields, which `manager` then owns. Without `force`, a field that
        another manager owns is a Conflict. Without a guard, it is safe to repeat.
        """
        name = body["metadata"]["name"]
        call = Call(
            asked=_asked("apply", resource, namespace, name, subresource),
            method="PATCH",
            path=resource.path(namespace, name, subresource),
            query={"fieldManager": manager, "force": "true" if force else "false"},
            body=_encode(resource, guard.into(body)),
            content_type="application/apply-patch+yaml",
            repeatable=not guard.fields(),
            within=within,
        )
        return resource.decode(await self._connection.request(call))

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        guard: Guard = NOT_GUARDED,
        grace_seconds: int | None = None,
        within: float | None = None,
    ) -> None:
        """Requests deletion; an object with finalizers or a grace period disappears later. Guard it by uid:
        another object may have got the same name.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if guard.fields():
            options["preconditions"] = guard.fields()
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        call = Call(
            asked=_asked("delete", resource, namespace, name),
            method="DELETE",
            path=resource.path(namespace, name),
            body=msgspec.json.encode(options),
            within=within,
        )
        await self._connection.request(call)

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
        """Binds the pod to a node and adds the annotations, both or neither. Never retried: only the leader
        may bind, and only the caller can check that again. After an `uncertain` error, a later read does not
        prove the outcome unless the pod's resourceVersion has changed meanwhile.
        """
        meta = {
            "name": name,
            "namespace": namespace,
            **guard.fields(),
            "annotations": dict(annotations or {}),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        call = Call(
            asked=f"bind pod {namespace}/{name} to {node}",
            method="POST",
            path=PODS.path(namespace, name, "binding"),
            body=msgspec.json.encode(body),
            retry=False,
            within=within,
        )
        await self._connection.request(call)

    async def evict(
        self, name: str, namespace: str, *, guard: Guard, dry_run: bool = False, within: float = 5.0
    ) -> None:
        """Evicts the pod as `kubectl drain` does: with its grace period, and with TooManyRequests if a
        PodDisruptionBudget forbids it now. `dry_run` only checks that. Never retried: only the leader may
        evict, and a budget does not change in a moment.
        """
        options: dict[str, Any] = {"preconditions": guard.fields()}
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        call = Call(
            asked=f"evict pod {namespace}/{name}",
            method="POST",
            path=PODS.path(namespace, name, "eviction"),
            query={"dryRun": "All"} if dry_run else {},
            body=msgspec.json.encode(body),
            retry=False,
            within=within,
        )
        await self._connection.request(call)

    async def watch(
        self,
        resource: Resource[W],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        seconds: int = 300,
        silence: float = 75.0,
    ) -> AsyncGenerator[WatchEvent[W], None]:
        """Yields changes since `resource_version` as they happen, for about `seconds`. The first event is a
        bookmark of that version, as soon as the server has accepted the watch. Raises Gone if the version is
        too old, Unreachable if the stream breaks, and Silent if nothing, not even a bookmark, has come for
        `silence` seconds. Most callers want a `Watcher`.
        """
        asked = _asked("watch", resource, selection.namespace)
        call = Call(
            asked=asked,
            method="GET",
            path=resource.path(selection.namespace),
            query={
                **selection.query(),
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "timeoutSeconds": str(seconds),
            },
        )
        async with (
            self._connection.stream(call, silence) as pieces,
            aclosing(events(asked, resource, pieces)) as all,
        ):
            yield WatchEvent(BOOKMARK, None, resource_version)
            async for event in all:
                yield event

    async def _read(
        self,
        asked: str,
        path: str,
        query: Mapping[str, str],
        within: float | None,
        *,
        retry: bool = True,
        limit: int | None = None,
    ) -> bytes:
        call = Call(asked, "GET", path, query, repeatable=True, retry=retry, within=within, limit=limit)
        return await self._connection.request(call)


def _asked(
    verb: str, resource: Resource[T], namespace: str | None, name: str = "", subresource: str = ""
) -> str:
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return " ".join(part for part in (verb, kind, "/".join(p for p in (namespace, name) if p)) if part)


def _encode(resource: Resource[T], body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})

"""Caches objects of one kind, and reports each change to its consumers exactly once.

At every moment the store is what its consumers were told: a change is applied, then reported, then the next
one is applied. The store knows nothing of the network, so relists, repeated events and re-created names are
handled and tested here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from cotenant.kube.api.objects import HasMeta

T = TypeVar("T", bound=HasMeta)


@dataclass(frozen=True)
class Change(Generic[T]):
    """`object` is the newest known state; of something deleted, the last one."""

    kind: Literal["added", "modified", "deleted"]
    object: T
    before: T | None = None


class Store(Generic[T]):
    """Objects by uid and by name."""

    def __init__(self) -> None:
        self._by_uid: dict[str, T] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._consumers: list[Callable[[Change[T]], None]] = []

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[T]:
        """Iterates over a snapshot: the store may change meanwhile."""
        return iter(list(self._by_uid.values()))

    def get(self, uid: str) -> T | None:
        return self._by_uid.get(uid)

    def named(self, name: str, namespace: str = "") -> T | None:
        uid = self._uids.get((namespace, name))
        return None if uid is None else self._by_uid[uid]

    def subscribe(self, consumer: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Reports all objects as added, and from then on every change, in order, at once. The returned
        function ends it. A consumer that raises stops the watch: a change must not be lost in silence.
        """
        for object in self:
            consumer(Change("added", object))
        self._consumers.append(consumer)
        return lambda: self._consumers.remove(consumer)

    async def changes(self) -> AsyncIterator[Change[T]]:
        """Yields the same for slow consumers; changes wait in memory until they are fetched."""
        waiting: deque[Change[T]] = deque()
        some = asyncio.Event()

        def keep(change: Change[T]) -> None:
            waiting.append(change)
            some.set()

        unsubscribe = self.subscribe(keep)
        try:
            while True:
                await some.wait()
                some.clear()
                while waiting:
                    yield waiting.popleft()
        finally:
            unsubscribe()

    def replace(self, objects: Iterable[T]) -> None:
        """Takes over a list and reports the difference; deletions first, since they make room."""
        listed = {object.metadata.uid: object for object in objects}
        for uid in [uid for uid in self._by_uid if uid not in listed]:
            self._remove(uid)
        for object in listed.values():
            self.put(object)

    def put(self, object: T) -> None:
        """Takes over a state of an object; one that is known already is not reported."""
        meta = object.metadata
        before = self._by_uid.get(meta.uid)
        if before is not None and before.metadata.resource_version == meta.resource_version:
            return
        name = (meta.namespace, meta.name)
        holder = self._uids.get(name)
        if holder is not None and holder != meta.uid:  # deleted and made anew while we looked away
            self._remove(holder)
        self._by_uid[meta.uid] = object
        self._uids[name] = meta.uid
        self._tell(Change("added" if before is None else "modified", object, before))

    def remove(self, object: T) -> None:
        """Removes a deleted object; `object` is its last state."""
        self._remove(object.metadata.uid, object)

    def _remove(self, uid: str, last: T | None = None) -> None:
        before = self._by_uid.pop(uid, None)
        if before is None:
            return
        name = (before.metadata.namespace, before.metadata.name)
        if self._uids.get(name) == uid:
            del self._uids[name]
        self._tell(Change("deleted", before if last is None else last, before))

    def _tell(self, change: Change[T]) -> None:
        for consumer in tuple(self._consumers):
            consumer(change)

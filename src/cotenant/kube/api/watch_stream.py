"""Parses the stream of a watch into typed events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from cotenant.kube.api.errors import Status, Undecodable, failure
from cotenant.kube.api.objects import HasMeta
from cotenant.kube.api.resources import Resource, decode

T = TypeVar("T", bound=HasMeta)
ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"


@dataclass(frozen=True)
class WatchEvent(Generic[T]):
    kind: str
    """ADDED, MODIFIED, DELETED, or BOOKMARK, which only reports the version that the server has reached."""
    object: T | None
    resource_version: str
    """A watch from this version continues after this event."""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _OnlyVersion(msgspec.Struct):
    metadata: _Version = _Version()


_OBJECT_PREFIXES = tuple(f'{{"type":"{kind}",'.encode() for kind in (ADDED, MODIFIED, DELETED))
"""How nearly every line begins; such a line is decoded in one pass."""
_LINE = msgspec.json.Decoder(_Line)
_VERSION = msgspec.json.Decoder(_OnlyVersion)
_STATUS = msgspec.json.Decoder(Status)


async def lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields complete lines only. A line that a broken connection has cut is sent again by the next watch,
    which continues after the last complete one.
    """
    parts: list[bytes] = []
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            parts.append(line)
            if text := b"".join(parts).strip():
                yield text
            parts = []
        if rest:
            parts.append(rest)


async def events(
    asked: str, resource: Resource[T], pieces: AsyncIterator[bytes]
) -> AsyncGenerator[WatchEvent[T], None]:
    """Yields the events of a watch. Raises an ERROR event as its own type: Gone if the version is too old."""
    async for line in lines(pieces):
        if line.startswith(_OBJECT_PREFIXES):
            event = resource.decode_event(line)
            version = event.object.metadata.resource_version
            if not version:
                raise Undecodable(f"{asked}: {Undecodable.said}: {event.type} without resourceVersion")
            yield WatchEvent(event.type, event.object, version)
        else:
            yield _decode_other(asked, resource, line)


def _decode_other(asked: str, resource: Resource[T], line: bytes) -> WatchEvent[T]:
    """Decodes bookmarks and errors, and events of servers that order the JSON fields differently."""
    event = decode(_LINE, line, "watch event")
    if event.type == ERROR:
        raise failure(asked, decode(_STATUS, event.object, "watch error"))
    version = decode(_VERSION, event.object, "watch event").metadata.resource_version
    if not version:
        raise Undecodable(f"{asked}: {Undecodable.said}: {event.type} without resourceVersion")
    if event.type == BOOKMARK:
        return WatchEvent(BOOKMARK, None, version)
    if event.type in {ADDED, MODIFIED, DELETED}:
        return WatchEvent(event.type, resource.decode(event.object), version)
    raise Undecodable(f"{asked}: {Undecodable.said}: an event of type {event.type!r}")

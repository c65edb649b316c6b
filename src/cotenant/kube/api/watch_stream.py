"""The text of a watch, line by line, as typed events."""

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
    """ADDED, MODIFIED, DELETED, or BOOKMARK, which only says how far the server has looked."""
    object: T | None
    resource_version: str
    """A watch from here continues after this event."""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _OnlyVersion(msgspec.Struct):
    metadata: _Version = _Version()


_OF_OBJECTS = tuple(f'{{"type":"{kind}",'.encode() for kind in (ADDED, MODIFIED, DELETED))
"""How nearly every line begins; it is read at once."""
_LINE = msgspec.json.Decoder(_Line)
_VERSION = msgspec.json.Decoder(_OnlyVersion)
_STATUS = msgspec.json.Decoder(Status)


async def lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines only: what a broken connection left unfinished is sent again to whoever continues from the
    last whole one.
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
    """An ERROR of the stream is raised as the error it is: Gone, if the place to continue from is too old."""
    async for line in lines(pieces):
        if line.startswith(_OF_OBJECTS):
            event = resource.decode_event(line)
            version = event.object.metadata.resource_version
            if not version:
                raise Undecodable(f"{asked}: {Undecodable.said}: {event.type} without resourceVersion")
            yield WatchEvent(event.type, event.object, version)
        else:
            yield _unusual(asked, resource, line)


def _unusual(asked: str, resource: Resource[T], line: bytes) -> WatchEvent[T]:
    """Whatever else there is, and events that another than Kubernetes' own server wrote in its own way."""
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

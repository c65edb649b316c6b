"""Names the owner of a slot, and reads and writes its record, `owner.json`.

An agent is upgraded, and rolled back, while containers run: records of older agents must be readable, and
theirs must read ours. So the fields of the first format stay, and what comes later has a default.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.core.grant import Share

CONTAINER = "container"
"""The kind of an owner that is a container of a pod, known to the kubelet by a device of the device plugin. A
part that gives slots to something else, such as a resource claim, has a kind of its own and removes them
itself.
"""


class SlotOwner(msgspec.Struct, frozen=True):
    """What a slot was made for. Two owners are the same if all of it is."""

    uid: str
    """Of the pod, or of the object that the kind says. It is in `limits`, too."""
    namespace: str
    name: str
    container: str = ""
    """The container of the pod; empty where the object owns the slot as a whole."""
    kind: str = CONTAINER

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.name, self.container) if part)


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str
    namespace: str
    pod: str
    """The owner's name, of whatever kind."""
    container: str
    device: str
    """The slot's key. The folder's name says the same; the first agents need it here."""
    shares: tuple[Share, ...]
    kind: str = CONTAINER


def encode_record(key: str, owner: SlotOwner, shares: Iterable[Share]) -> bytes:
    return msgspec.json.encode(
        _Record(owner.uid, owner.namespace, owner.name, owner.container, key, tuple(shares), kind=owner.kind)
    )


def decode_record(text: bytes) -> tuple[SlotOwner, tuple[Share, ...]]:
    """Raises MsgspecError if it is damaged."""
    record = msgspec.json.decode(text, type=_Record)
    return (
        SlotOwner(record.uid, record.namespace, record.pod, record.container, record.kind),
        record.shares,
    )

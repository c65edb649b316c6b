"""Reads and writes the grant of a pod in its annotation `cotenant.dev/grant`.

It is read when the server starts and before a container starts. Others may have written to it: everything
that is not exactly a grant of exactly this pod raises GrantUnreadable, and nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Grant, Share
from cotenant.core.units import LARGEST
from cotenant.dialects import names

VERSION = 1
LONGEST = 128 * 1024
"""Characters. The largest pod that is admitted, 32 containers with 16 GPUs each, fits whatever its GPUs are
called.
"""
_LONGEST_CACHED = 4 * 1024
"""Characters. Longer ones are rare, and 256 of them would be kept."""

_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")]
_PodUid = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]
_CardUuid = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")]


class GrantUnreadable(CotenantError):
    """A grant annotation that is damaged, forged, or of another pod or a newer version."""


class _Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    uuid: _CardUuid
    memory: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    compute: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    whole: bool = False


class _Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    container: _Name
    shares: Annotated[tuple[_Share, ...], msgspec.Meta(min_length=1, max_length=1024)]
    init: tuple[_Name, ...] = ()


class _Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    uid: _PodUid
    slots: Annotated[tuple[_Slot, ...], msgspec.Meta(min_length=1, max_length=1024)]


class _Version(msgspec.Struct):
    version: int = 0


class SlotGrant(msgspec.Struct, frozen=True):
    """What one slot was granted."""

    container: str
    """The container that holds the slot."""
    shares: tuple[Share, ...]
    init: tuple[str, ...] = ()
    """Init containers that use the slot before it."""


class PodGrant(msgspec.Struct, frozen=True):
    """What a pod was granted: all its slots."""

    uid: str
    """The pod's UID. A grant copied to another pod is not valid."""
    slots: tuple[SlotGrant, ...]

    @property
    def charges(self) -> tuple[Grant, ...]:
        """Lists one grant per slot for the ledger: two slots of a pod may be on the same GPU."""
        return tuple(Grant(charge_id(self.uid, slot.container), slot.shares) for slot in self.slots)

    def slot_of(self, container: str) -> SlotGrant | None:
        """Finds the slot that the container holds or, as an init container, uses."""
        return next(
            (slot for slot in self.slots if container == slot.container or container in slot.init), None
        )


def charge_id(uid: str, container: str) -> str:
    """Returns the ledger's id of a slot; those of a pod begin with its UID."""
    return f"{uid}/{container}"


def write_grant(grant: PodGrant) -> str:
    """Writes the annotation's text. ValueError, a bug, if it could not be read back."""
    slots = tuple(
        _Slot(
            slot.container,
            tuple(_Share(share.uuid, share.memory, share.compute, share.whole) for share in slot.shares),
            slot.init,
        )
        for slot in grant.slots
    )
    text = msgspec.json.encode(_Grant(VERSION, grant.uid, slots)).decode()
    try:
        read_grant(text, grant.uid)
    except GrantUnreadable as error:
        raise ValueError(str(error)) from error
    return text


def read_grant(text: object, uid: str) -> PodGrant:
    """Reads the grant of the pod with this UID."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise _unreadable("it is not a text of a grant's size")
    return (_cached if len(text) <= _LONGEST_CACHED else _read)(text, uid)


def _read(text: str, uid: str) -> PodGrant:
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != VERSION:
            raise _unreadable(f"it has version {version}, and this is made for {VERSION}")
        grant = msgspec.json.decode(text, type=_Grant)
        slots = tuple(
            SlotGrant(
                slot.container,
                tuple(Share(share.uuid, share.memory, share.compute, share.whole) for share in slot.shares),
                slot.init,
            )
            for slot in grant.slots
        )
        result = PodGrant(grant.uid, slots)
        _ = result.charges
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    if result.uid != uid:
        raise _unreadable(f"it is of the pod with UID {result.uid}, and this pod's is {uid}")
    containers = [name for slot in slots for name in (slot.container, *slot.init)]
    if len(set(containers)) != len(containers):
        raise _unreadable("it names a container twice")
    return result


_cached = lru_cache(maxsize=2048)(_read)
"""What was just written is soon read again."""


def _unreadable(why: str) -> GrantUnreadable:
    return GrantUnreadable(
        f"annotation {names.GRANT}: {why}. Only the server writes it: delete the pod, and it is granted anew"
    )

"""Stores the slots of a node on its tmpfs.

    <root>/slots/<key>/folder/{limits,usage}   what the container sees
    <root>/slots/<key>/owner.json              the owner: beside the folder, where no container can read it

A key is chosen by the part that offers slots to the kubelet (the device plugin: `slot-0000`); here it is
only a name. The agent is the only writer, and each change is atomic for readers: a slot is there with its
limits, or there are no limits and the shim refuses all memory. No method awaits anything, so in one event
loop no two of them interleave.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.hardware import slots
from cotenant.hardware.enforcers.enforcer import Enforcer
from cotenant.hardware.slots import Limits, SlotUnusable
from cotenant.kube.agent.slots.owner import SlotOwner, decode_record, encode_record
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

_FOLDER, _OWNER = "folder", "owner.json"
_FRESH, _RETIRED = ".fresh", ".retired"
"""A slot that is being created, and one that is being deleted; an agent that is killed may leave them."""
_BELIEVED = 10.0
"""Seconds for which a reading of all slots is believed: only a fault on the node changes one meanwhile."""
_KEY = re.compile(r"[a-z0-9]([-.a-z0-9]{0,126}[a-z0-9])?\Z")


class SlotHeld(CotenantError):
    """Processes of its last owner still use the slot."""


class BadSlotKey(CotenantError):
    """A key that cannot be the name of a folder."""


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """A slot with limits: one that a container can use."""

    key: str
    owner: SlotOwner
    shares: tuple[Share, ...]
    """What was granted to the owner."""
    limits: Limits
    folder: Path

    def usage(self) -> slots.Usage:
        """Raises SlotUnusable if the slot was removed meanwhile."""
        return slots.read_usage(self.folder)

    def activity(self) -> slots.Activity:
        """Raises SlotUnusable if the slot was removed meanwhile."""
        return slots.read_activity(self.folder)

    def is_held(self) -> bool:
        return slots.is_held(self.folder)

    def bytes_on(self, uuid: str) -> int:
        return sum(card.bytes for card in self.limits.cards if card.uuid == uuid)

    def is_whole(self, uuid: str) -> bool:
        return any(share.uuid == uuid and share.whole for share in self.shares)


class Oversized(NamedTuple):
    """A slot whose container made `usage` larger than it is."""

    key: str
    slot: NodeSlot | None
    """None if it has no limits: no container can use it."""
    bytes: int
    """What was cut off."""


_Mark = tuple[int, int, int]


class _Known(NamedTuple):
    slot: NodeSlot
    limits: str
    """The path of its `limits`."""
    mark: _Mark


def _mark(path: str) -> _Mark:
    """Returns what differs as soon as the file is another one, or was written to."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


class NodeSlots:
    def __init__(self, root: Path, enforcer: Enforcer) -> None:
        self.root = root
        self.enforcer = enforcer
        self._slots = root / "slots"
        self._known: dict[str, _Known] = {}
        self._changes = 0
        """How many changes of slots have begun, and how many have ended."""
        self._reading: tuple[int, float, list[NodeSlot]] = (-1, 0.0, [])
        """The last one of all slots: the changes when it began, the time, the slots."""

    def folder(self, key: str) -> Path:
        """What is mounted into the container: the same path for every owner that ever gets this key."""
        if not _KEY.match(key):
            raise BadSlotKey(
                f"{key[:140]!a} cannot be the key of a slot: it has lower-case letters, digits, '-' and '.', "
                "at most 128 of them"
            )
        return self._slots / key / _FOLDER

    def has_any(self) -> bool:
        """Whether there may be a slot: one look at the folder."""
        try:
            with os.scandir(self._slots) as found:
                return next(found, None) is not None
        except FileNotFoundError:
            return False

    def keys(self) -> list[str]:
        """Lists the keys of all slots on disk, with limits or without."""
        return sorted(name for name in slots.names(self._slots) if _KEY.match(name))

    def known(self) -> list[NodeSlot]:
        """Returns all slots as they were read not long ago, for those who look at hundreds every few seconds.
        Callers must not change it.
        """
        changes, at, found = self._reading
        return found if changes == self._changes and time.monotonic() - at < _BELIEVED else self.read()

    def read(self) -> list[NodeSlot]:
        """Reads all slots with limits, by key."""
        changes, at, keys = self._changes, time.monotonic(), self.keys()
        if len(self._known) > len(keys):
            for gone in self._known.keys() - set(keys):
                self._known.pop(gone, None)
        found = [slot for key in keys if (slot := self.find(key)) is not None]
        self._reading = changes, at, found
        return found

    def find(self, key: str) -> NodeSlot | None:
        """Reads one slot; None if there is nothing that a container could use. One whose `limits` is the same
        file as before is not read again: hundreds of slots are looked at every two seconds.
        """
        known = self._known.get(key)
        path = known.limits if known is not None else f"{self.folder(key)}/limits"
        try:
            mark = _mark(path)
        except OSError:
            self._known.pop(key, None)
            return None
        if known is not None and known.mark == mark:
            return known.slot
        slot = self._find(key, self.folder(key))
        if slot is not None:
            self._known[key] = _Known(slot, path, mark)
        return slot

    def _folder(self, key: str) -> Path:
        """Returns the folder, without checking a key that is known."""
        known = self._known.get(key)
        return self.folder(key) if known is None else known.slot.folder

    def _find(self, key: str, folder: Path) -> NodeSlot | None:
        try:
            limits = slots.read_limits(folder)
        except SlotUnusable:
            return None
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            owner, shares = decode_record(folder.with_name(_OWNER).read_bytes())
            if owner.uid == limits.owner:
                return NodeSlot(key, owner, shares, limits, folder)
        unknown = SlotOwner(limits.owner, "", "")  # the record is damaged: the limits are all that is known
        return NodeSlot(key, unknown, slots.shares_of(limits), limits, folder)

    def prepare(self, key: str) -> Path:
        """Returns the folder to mount, empty: the key was just given to another owner. A slot in use is left
        as it is; its next container does not start before it is free.
        """
        folder = self.folder(key)
        with contextlib.suppress(SlotHeld):
            self._retire(key)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def make(self, key: str, owner: SlotOwner, shares: Iterable[Share], limits: Limits) -> None:
        """Replaces the slot by one for this owner; SlotHeld while processes use it. Limits appear last, by a
        rename.
        """
        try:
            self._make(key, owner, shares, limits)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.cut():
                raise self._unusable(key, error) from None
            try:
                self._make(key, owner, shares, limits)
            except OSError as again:
                raise self._unusable(key, again) from None

    def _make(self, key: str, owner: SlotOwner, shares: Iterable[Share], limits: Limits) -> None:
        folder = self.folder(key)
        self._retire(key)
        with self._changing():
            folder.parent.mkdir(parents=True, exist_ok=True)
            slots.write_record(folder.with_name(_OWNER), encode_record(key, owner, shares), 0o644)
            fresh = folder.with_name(_FRESH)
            self.enforcer.prepare(fresh, limits, slots.MOUNTED)
            fresh.rename(folder)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """No reading that a thread makes meanwhile is believed."""
        self._changes += 1
        try:
            yield
        finally:
            self._changes += 1

    def _unusable(self, key: str, error: OSError) -> SlotUnusable:
        return SlotUnusable(
            f"the slot {self.folder(key)} cannot be made: {error.strerror}. It needs a tmpfs with room"
        )

    def cut(self) -> list[Oversized]:
        """Cuts every `usage` that its container made larger than it is, and returns those: all slots share
        one tmpfs, and a full one would keep other containers from starting.
        """
        found = ((key, slots.cut(self._folder(key))) for key in self.keys())
        cut = [Oversized(key, self.find(key), size) for key, size in found if size]
        for each in cut:
            log.warning(
                "usage of a slot cut to its size: its container made it larger",
                device=each.key,
                owner=each.slot.owner if each.slot else None,
                bytes=each.bytes,
            )
        return cut

    def remove(self, slot: NodeSlot, *, force: bool = False) -> bool:
        """Deletes the slot if it still has this owner and no process uses it; returns whether it did. `force`
        deletes it whatever has a lock on it: the caller knows that no process of its owner lives.
        """
        now = self.find(slot.key)
        if now is None or now.owner != slot.owner:
            return False
        try:
            self._retire(slot.key, force=force)
        except SlotHeld:
            return False
        slot.folder.with_name(_OWNER).unlink(missing_ok=True)
        return True

    def sweep(self) -> None:
        """Deletes what an agent that was killed left half-made."""
        for key in self.keys():
            for name in slots.names(self._slots / key):
                if name not in (_FOLDER, _OWNER):
                    _delete(self._slots / key / name)

    def _retire(self, key: str, *, force: bool = False) -> None:
        """Closes the slot and deletes its files. No process can begin to use a closed slot, not even one that
        has it mounted.
        """
        folder = self.folder(key)
        for part in (_FRESH, _RETIRED):
            _delete(folder.with_name(part))
        if not folder.exists():
            return
        if (folder / "usage").is_file() and not self.enforcer.tear_down(folder, force=force):
            found = self.find(key)
            raise SlotHeld(f"{key}: processes of {found.owner if found else 'its last owner'} still use it")
        retired = folder.with_name(_RETIRED)
        with self._changing():
            folder.rename(retired)
            _delete(retired)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

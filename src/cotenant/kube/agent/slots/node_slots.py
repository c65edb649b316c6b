"""The slots of a node, on its tmpfs.

    <root>/slots/<device>/folder/{limits,usage}   what the container sees
    <root>/slots/<device>/owner.json              whose it is: beside the folder, where no container can look

The agent is the only one who writes here, and each change is one step for whoever looks: a slot is there with
its limits, or there are no limits and the shim refuses all memory. No method waits for anything, so in one
event loop none runs into another.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.hardware import slots
from cotenant.hardware.slots import Limits, SlotUnusable

_FOLDER, _OWNER = "folder", "owner.json"
_FRESH, _RETIRED = ".fresh", ".retired"
"""On their way in and out; what a killed agent leaves of them is nobody's."""
_DEVICE = re.compile(r"slot-(\d{4,6})\Z")


class SlotHeld(CotenantError):
    """Processes of its last container still live in the slot."""


class NoSuchSlot(CotenantError):
    """A device id that was never offered."""


class SlotOwner(msgspec.Struct, frozen=True):
    """The container that a slot was made for, and what it was granted there."""

    uid: str
    namespace: str
    pod: str
    container: str
    device: str
    shares: tuple[Share, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """A slot with limits: one that a container can use."""

    device: str
    owner: SlotOwner
    limits: Limits
    folder: Path

    def usage(self) -> slots.Usage:
        """SlotUnusable if it was removed meanwhile."""
        return slots.read_usage(self.folder)

    def is_held(self) -> bool:
        return slots.is_held(self.folder)

    def bytes_on(self, uuid: str) -> int:
        return sum(card.bytes for card in self.limits.cards if card.uuid == uuid)

    def is_whole(self, uuid: str) -> bool:
        return any(share.uuid == uuid and share.whole for share in self.owner.shares)


def device_id(number: int) -> str:
    """As the kubelet knows a slot. It stands in checkpointed host paths, so it never changes."""
    return f"slot-{number:04d}"


class NodeSlots:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._slots = root / "slots"

    def folder(self, device: str) -> Path:
        """What is mounted into the container: the same path for all that ever get this device."""
        if not _DEVICE.match(device):
            raise NoSuchSlot(f"{device!r} is no slot of this node: they are called {device_id(0)} and so on")
        return self._slots / device / _FOLDER

    def highest(self) -> int:
        """How many slots there must be for all that are on disk to have a number; 0 if none is."""
        return max((int(match[1]) + 1 for name in self._names() if (match := _DEVICE.match(name))), default=0)

    def read(self) -> list[NodeSlot]:
        """All slots with limits, by device."""
        return sorted(self._read(), key=lambda slot: slot.device)

    def find(self, device: str) -> NodeSlot | None:
        """None where there is nothing that a container could use."""
        folder = self.folder(device)
        try:
            limits = slots.read_limits(folder)
        except SlotUnusable:
            return None
        return NodeSlot(device, self._owner(device, limits), limits, folder)

    def prepare(self, device: str) -> Path:
        """The folder to mount, empty: the kubelet has just given the device to another container. One that is
        still lived in is left; its successor does not start before it is free.
        """
        folder = self.folder(device)
        with contextlib.suppress(SlotHeld):
            self._retire(device)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def make(self, owner: SlotOwner, limits: Limits) -> None:
        """The slot anew for this owner. SlotHeld if somebody lives in it. Limits appear last, by a rename."""
        folder = self.folder(owner.device)
        try:
            self._retire(owner.device)
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._write_owner(owner)
            fresh = folder.with_name(_FRESH)
            slots.create(fresh, limits, modes=slots.MOUNTED)
            fresh.rename(folder)
        except OSError as error:
            raise SlotUnusable(
                f"the slot {folder} cannot be made: {error.strerror}. It needs a tmpfs with room"
            ) from None

    def remove(self, slot: NodeSlot) -> bool:
        """Ends the slot, if it is still this one and nobody lives in it."""
        now = self.find(slot.device)
        if now is None or now.owner.uid != slot.owner.uid or now.owner.container != slot.owner.container:
            return False
        try:
            self._retire(slot.device)
        except SlotHeld:
            return False
        (self.folder(slot.device).parent / _OWNER).unlink(missing_ok=True)
        return True

    def sweep(self) -> None:
        """Away with what an agent that was killed left half-made."""
        for name in self._names():
            for part in (_FRESH, _RETIRED, f"{_OWNER}.new"):
                _delete(self._slots / name / part)

    def _retire(self, device: str) -> None:
        """Nobody can begin to live in a closed slot, not even a process that has it mounted."""
        folder = self.folder(device)
        for part in (_FRESH, _RETIRED):
            _delete(folder.with_name(part))
        if not folder.exists():
            return
        if (folder / "usage").is_file() and not slots.close(folder):
            whose = self.find(device)
            raise SlotHeld(
                f"{device}: processes of {whose.owner if whose else 'its last container'} still use it"
            )
        retired = folder.with_name(_RETIRED)
        folder.rename(retired)
        _delete(retired)

    def _read(self) -> Iterator[NodeSlot]:
        for name in self._names():
            if _DEVICE.match(name) and (slot := self.find(name)):
                yield slot

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._slots)
        except FileNotFoundError:
            return []

    def _owner(self, device: str, limits: Limits) -> SlotOwner:
        """What the record says; where it is damaged, as much as the limits tell."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            text = (self._slots / device / _OWNER).read_bytes()
            owner = msgspec.json.decode(text, type=SlotOwner)
            if owner.uid == limits.owner:
                return owner
        shares = tuple(Share(card.uuid, card.bytes) for card in limits.cards if card.bytes)
        return SlotOwner(limits.owner, "", "", "", device, shares)

    def _write_owner(self, owner: SlotOwner) -> None:
        path = self.folder(owner.device).with_name(_OWNER)
        draft = path.with_name(f"{_OWNER}.new")
        draft.write_bytes(msgspec.json.encode(owner))
        draft.replace(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

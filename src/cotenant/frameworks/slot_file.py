"""Reads the file `limits` of a slot, in which a grant of Cotenant is written for the processes that hold it.

The layout is that of csrc/include/cotenant_slot.h. It is read here once more, because this package imports
nothing of Cotenant; a test compares both readers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .errors import ShareError

ABI = 1
MODES = ("observe", "warn", "enforce")
MOST_CARDS = 16

_HEADER = struct.Struct("<8sII64sQQ")
_CARD = struct.Struct("<80sQQ32x")
_CARDS_AT = 256
_SIZE = _CARDS_AT + _CARD.size * MOST_CARDS


class SlotCard(NamedTuple):
    uuid: str
    limit: int
    context: int


class Slot(NamedTuple):
    mode: str
    cards: tuple[SlotCard, ...]


def read_slot(folder: str) -> Slot:
    """Reads the slot in this folder; ShareError if it is gone, damaged or of another version."""
    path = f"{folder}/limits"
    try:
        with open(path, "rb") as file:
            data = file.read(_SIZE)
    except OSError as error:
        raise ShareError(
            f"{path}: {error.strerror}: the grant has ended, or the slot is not mounted here"
        ) from None
    try:
        return decode(data)
    except ValueError as error:
        raise ShareError(
            f"{path}: {error}: take cotenant.frameworks of the Cotenant that runs here"
        ) from None


def decode(data: bytes) -> Slot:
    """Decodes the content of `limits`; ValueError says what is wrong with it."""
    if len(data) < _SIZE:
        raise ValueError(f"it has {len(data)} bytes, {_SIZE} are expected")
    magic, abi, count, _owner, mode, _granule = _HEADER.unpack_from(data)
    if magic != b"COTLIMIT" or abi != ABI:
        raise ValueError(f"it is not of version {ABI}")
    if not 1 <= count <= MOST_CARDS or mode >= len(MODES):
        raise ValueError(f"{count} cards and mode {mode} are not valid")
    found = (_CARD.unpack_from(data, _CARDS_AT + index * _CARD.size) for index in range(count))
    cards = (SlotCard(uuid.split(b"\0", 1)[0].decode(errors="replace"), *sizes) for uuid, *sizes in found)
    return Slot(MODES[mode], tuple(cards))

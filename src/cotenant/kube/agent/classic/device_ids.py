"""Numbers the devices of the device plugin. A device's id is the key of its slot.

The ids are part of host paths that the kubelet has in its checkpoint, so they never change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cotenant.core.errors import CotenantError

_DEVICE = re.compile(r"slot-(\d{4,6})\Z")


class NoSuchDevice(CotenantError):
    """A device id that was never offered."""


def device_id(number: int) -> str:
    return f"slot-{number:04d}"


def check(device: str) -> str:
    """Returns the id if it is one of this device plugin's."""
    if not _DEVICE.match(device):
        raise NoSuchDevice(f"{device!a} is no slot of this node: they are called {device_id(0)} and so on")
    return device


def count_for(keys: Iterable[str]) -> int:
    """Returns how many devices must be offered so that every slot on disk is one of them; 0 if there is
    none.
    """
    return max((int(match[1]) + 1 for key in keys if (match := _DEVICE.match(key))), default=0)

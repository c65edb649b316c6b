"""Reads the size of cards from the driver (NVML), by ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import NamedTuple

LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED = 3
"""NVML's answer for a card that has no memory of its own and uses the host's, such as GB10."""


class Sizes(NamedTuple):
    """Bytes of each card that could be read, by UUID."""

    bytes: dict[str, int]
    unread: str = ""
    """Why one could not be read; the last, if there are several."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def read_sizes(uuids: Iterable[str]) -> Sizes:
    """Asks NVML for the size of each card. It is a little more than CUDA can use of it, so that a fraction of
    it is on the safe side. NVML creates no context.
    """
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return Sizes({}, f"{LIBRARY} cannot be loaded: {error}")
    code = nvml.nvmlInit_v2()
    if code:
        return Sizes({}, f"nvmlInit returned {code}")
    found, unread = {}, ""
    for uuid in uuids:
        handle, memory = ctypes.c_void_p(), _Memory()
        code = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        code = code or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        if code == _NOT_SUPPORTED:
            found[uuid] = _host_memory()
        elif code:
            unread = f"NVML returned {code} for {uuid}"
        else:
            found[uuid] = int(memory.total)
    nvml.nvmlShutdown()
    return Sizes(found, unread)


def _host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

"""Wakes whoever waits for a change in a folder, by inotify: nothing has to be polled.

Python's standard library has no inotify; these are three calls of the C library.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_OPTIONS = os.O_NONBLOCK | os.O_CLOEXEC
"""IN_NONBLOCK and IN_CLOEXEC are the same."""
_ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF = 0x4, 0x40, 0x80, 0x100, 0x200, 0x400
_CHANGES = _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF
_MOST = 64 << 10
"""Bytes that are read at once. What happened is not looked at: only that something did."""


@contextlib.contextmanager
def watching(folder: Path, changed: asyncio.Event) -> Iterator[bool]:
    """Sets the event at each change of the folder's entries until the block ends. Yields whether it does: the
    kernel may refuse, since a host has a limit of watches for all its processes.
    """
    fd = _open(folder)
    if fd is None:
        yield False
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, _MOST)
        changed.set()

    loop.add_reader(fd, read)
    try:
        yield True
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _open(folder: Path) -> int | None:
    """Returns a descriptor that becomes readable at changes; None if the kernel refuses."""
    c_library = ctypes.CDLL(None)
    fd: int = c_library.inotify_init1(_OPTIONS)
    if fd < 0:
        return None
    if c_library.inotify_add_watch(fd, os.fsencode(folder), _CHANGES) < 0:
        os.close(fd)
        return None
    return fd

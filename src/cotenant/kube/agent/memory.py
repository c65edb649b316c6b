"""Makes the C library give memory back that large answers took.

glibc keeps what was freed for the next request: each scrape and each list of pods is a text of hundreds of
KiB, and what lies between them keeps all of it from being returned. An agent with hundreds of containers then
has 8 MiB more than it uses.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h."""
_LARGE = 64 << 10
"""Bytes. What is larger gets pages of its own, which are returned when it is freed."""


def return_freed_memory() -> None:
    """Does nothing where the C library is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _LARGE)

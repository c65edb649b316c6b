"""Makes the C library give memory back that imports and large answers took.

glibc keeps what was freed for the next request: each scrape and each list of pods is a text of hundreds of
KiB, and what lies between them keeps all of it from being returned. An agent with hundreds of containers then
has 8 MiB more than it uses. To import NVML's bindings leaves 11 MiB more.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of glibc's malloc.h."""
_LARGE = 64 << 10
"""Bytes. What is larger gets pages of its own, which are returned when it is freed."""


def return_freed_memory() -> None:
    """Does nothing where the C library is another one."""
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "mallopt"):
        c_library.mallopt(_MMAP_THRESHOLD, _LARGE)
        c_library.mallopt(_TRIM_THRESHOLD, _LARGE)
        c_library.mallopt(
            _ARENA_MAX, 1
        )  # threads take turns here, and each would keep freed memory of its own
        c_library.malloc_trim(0)

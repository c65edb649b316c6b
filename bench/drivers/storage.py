"""Keeps downloads in the user's cache folder, and stops before they fill the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

GIB = 1 << 30
RESERVE = 4 * GIB
"""Bytes of the disk that stay free, whatever is fetched."""


class CannotGet(Exception):
    """Something cannot be fetched here; the message says why."""


def folder() -> Path:
    """Returns ${XDG_CACHE_HOME:-~/.cache}/cotenant/drivers, where everything that is fetched stays."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "cotenant" / "drivers"
    path.mkdir(parents=True, exist_ok=True)
    return path


def check_room(needed: int) -> None:
    """Raises CannotGet if `needed` bytes would leave less than the reserve."""
    free = shutil.disk_usage(folder()).free
    if free - needed < RESERVE:
        raise CannotGet(
            f"it takes {needed / GIB:.1f} GiB in {folder()}, where {free / GIB:.1f} GiB are free "
            f"and {RESERVE / GIB:.0f} GiB stay free"
        )

"""Reads root's settings for one machine: the most that each user may have at a time.

The file is root's own, not in the ledger's folder, which all users can write. Environment variables do not
count, since each user sets their own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from cotenant.core.caps import NO_CAPS, Caps
from cotenant.core.errors import BadInput
from cotenant.settings.declaring import Bytes, Range

FILE = Path("/etc/cotenant/machine.toml")
ROOT = "root"


@dataclass(frozen=True)
class EachUserSettings:
    """The most that each user but root may have at a time. 0 is no cap."""

    running: Annotated[int, Range(0, 1_000_000)] = 0
    """Commands that hold a grant; further ones wait."""
    memory: Bytes = 0
    """GPU memory granted, on all GPUs together; what would be more waits."""
    waiting: Annotated[int, Range(0, 1_000_000)] = 0
    """Commands in line; a further one exits with 75."""


@dataclass(frozen=True)
class MachineSettings:
    each_user: EachUserSettings = field(default_factory=EachUserSettings)


def load_caps(file: Path = FILE, owner: int = 0) -> Caps:
    """Reads the caps; none without the file. A file that others than its owner can write is refused."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return NO_CAPS
    except OSError as error:
        raise BadInput(f"settings: {file} cannot be read: {error.strerror}") from None
    if found.st_uid != owner or found.st_mode & 0o022:
        raise BadInput(
            f"settings: {file} must belong to root, and only root may write it: sudo chmod 644 {file}"
        )
    from cotenant.settings.loading import load_settings  # most machines have no such file

    each = load_settings(MachineSettings, file, {}).each_user
    return Caps(each.running or None, each.memory or None, each.waiting or None, exempt=frozenset({ROOT}))

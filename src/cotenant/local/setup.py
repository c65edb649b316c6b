"""The folder for all users of a machine."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.local import home

TMPFILES = Path("/etc/tmpfiles.d")


class NeedsRoot(CotenantError):
    """Only root can make what all users share."""


def setup(folder: Path, tmpfs: Path = home.TMPFS, tmpfiles: Path | None = None) -> list[Path]:
    """Make the folder, and its part on tmpfs, so that every user may use them; tells what is there now.

    With `tmpfiles` the part on tmpfs comes back at every boot; without it slots are in the folder itself.
    """
    if os.geteuid() != 0:
        raise NeedsRoot("the folder for all users is made by root: sudo cotenant setup")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        made = [folder]
        prepared = home.prepare(folder, tmpfs=tmpfs)
        prepared.runtime.chmod(0o777)
        prepared.slots.chmod(0o777)
        made.append(prepared.runtime)
        if tmpfiles is not None and tmpfiles.is_dir() and prepared.runtime.parent == tmpfs:
            rule = tmpfiles / "cotenant.conf"
            rule.write_text(f"# Cotenant's slots, at every boot\nd {prepared.runtime} 0777 root root -\n")
            made.append(rule)
    except OSError as error:
        raise NeedsRoot(f"{error.filename or folder} cannot be made: {error.strerror}") from None
    return made

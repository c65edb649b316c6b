"""Creates the folder for a ledger that all users of a machine share."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.local import home

TMPFILES = Path("/etc/tmpfiles.d")


class NeedsRoot(CotenantError):
    """Only root can create what all users share."""


def setup(folder: Path, tmpfs: Path = home.TMPFS, tmpfiles: Path | None = None) -> list[Path]:
    """Creates the folder and its part on tmpfs, writable for every user; returns their paths.

    With `tmpfiles` the part on tmpfs is created at every boot; without it slots are in the folder itself.
    """
    if os.geteuid() != 0:
        raise NeedsRoot("only root can create the folder for all users: sudo cotenant setup")
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
        raise NeedsRoot(f"{error.filename or folder} cannot be created: {error.strerror}") from None
    return made

"""Finds and creates the folders of a machine's ledger and slots.

The ledger is on disk; slots and simulated GPUs are on tmpfs, since they never outlive a boot. A home that is
world-writable is shared by all users, and everything in it is made so that each user can clean up what
another left behind: the users of one machine cooperate.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import LedgerUnusable

FOR_ALL = Path("/var/lib/cotenant")
LEDGER = "ledger.sqlite3"
TMPFS = Path("/dev/shm")  # noqa: S108 -- folders in it are used only if their owner is the right one


@dataclass(frozen=True)
class Home:
    """The folders of one ledger; `simulated` is the spec of simulated GPUs, None for real ones."""

    folder: Path
    runtime: Path
    shared: bool
    simulated: str | None = None

    @property
    def ledger(self) -> Path:
        return self.folder / LEDGER

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def slots(self) -> Path:
        return self.runtime / "slots"

    @property
    def standin(self) -> Path:
        """The state of the simulated GPUs."""
        return self.runtime / "cards"


def choose(environ: Mapping[str, str], for_all: Path = FOR_ALL) -> Path:
    """Chooses $COTENANT_HOME, else the folder for all users if root has created it, else the user's own."""
    asked = environ.get("COTENANT_HOME")
    if asked:
        return Path(asked).expanduser().absolute()
    if for_all.is_dir() and os.access(for_all, os.W_OK | os.X_OK):
        return for_all
    state = environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state) / "cotenant"


def prepare(base: Path, simulated: str | None = None, tmpfs: Path = TMPFS) -> Home:
    """Creates the folders that are missing; simulated GPUs have a separate home inside the base."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = base.stat()
        shared = bool(owner.st_mode & stat.S_IWOTH)
        runtime = _runtime(base, owner.st_uid, shared, tmpfs)
        if simulated is None:
            home = Home(base, runtime, shared)
        else:
            inside = Path("simulated") / slug(simulated)
            _folder(base / "simulated", shared)
            _folder(runtime / "simulated", shared)
            home = Home(base / inside, runtime / inside, shared, simulated)
            _folder(home.folder, shared)
            _folder(home.runtime, shared)
        _folder(home.slots, shared)
    except OSError as error:
        raise LedgerUnusable(
            f"the folder {error.filename or base} cannot be used: {error.strerror}. "
            "Name another one in COTENANT_HOME, or let root run `cotenant setup`"
        ) from None
    return home


def slug(spec: str) -> str:
    """Makes a folder name from a spec of simulated GPUs; two specs never share one."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec)
    return name if name == spec and len(name) <= 64 else f"{name[:64]}-{zlib.crc32(spec.encode()):08x}"


def runtime_name(base: Path, uid: int) -> str:
    return f"cotenant-{uid}-{zlib.crc32(os.fsencode(base)):08x}"


def _runtime(base: Path, uid: int, shared: bool, tmpfs: Path) -> Path:
    """Returns the folder on tmpfs if its owner is the home's owner, who alone can have created it; else
    `run` in the home.
    """
    folder = tmpfs / runtime_name(base, uid)
    if uid == os.getuid() and tmpfs.is_dir():
        _folder(folder, shared)
    try:
        found = folder.lstat()
    except OSError:
        found = None
    if found and stat.S_ISDIR(found.st_mode) and found.st_uid == uid and os.access(folder, os.W_OK | os.X_OK):
        return folder
    _folder(base / "run", shared)
    return base / "run"


def _folder(path: Path, shared: bool) -> None:
    before = os.umask(0)  # for all users from the moment it exists
    try:
        path.mkdir(mode=0o777 if shared else 0o700, exist_ok=True)
    finally:
        os.umask(before)

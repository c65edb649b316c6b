"""Runs an MPS control daemon of the user's own for commands with --mps, and ends it when none needs it.

A job needs it for as long as the ledger has the job and a process of it lives, whatever was killed. A command
that is about to start holds a shared lock on a file beside the daemon, so that nobody ends it just then. MPS
serves one user at a time, so each user has a daemon: also users who share one ledger.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.control import Control, MpsError, find_program
from cotenant.hardware.mps.place import Place, place_in
from cotenant.local import ownership, reap
from cotenant.local.home import Home
from cotenant.local.job import Job

_READY = 3.0
"""Seconds in which a daemon that was started must answer."""
_ENDS_IN = 1
"""Seconds until servers are ended whose clients outlived the command."""


def own_place(home: Home) -> Place:
    """Returns the place of the user's daemon. It is beside the slots, not with the ledger: paths of sockets
    are short.
    """
    return place_in(_folder(home), "run")


def keep(home: Home, environ: Mapping[str, str]) -> int:
    """Starts the user's daemon unless it runs, and returns a descriptor: while it or a copy is open, the
    daemon is not ended. Programs that are started from here inherit it.
    """
    program, place = find_program(environ), own_place(home)
    _make(home)
    held = os.open(_lock(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)  # waits for a process that is about to end the daemon
        place.make(0o700)
        passed = {name: environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in environ}
        daemon.start(program, place, environ=passed)
        _wait(Control(program, place))
    except BaseException:
        os.close(held)
        raise
    os.set_inheritable(held, True)
    return held


def needs(job: Job) -> bool:
    """Whether a job may use the user's daemon."""
    asks = job.demand.compute is not None and bool(job.shares)
    return asks and ownership.owner(job) in (os.getuid(), None) and reap.is_alive(job)


def is_unused(home: Home, jobs: Iterable[Job]) -> bool:
    """Whether the user's daemon runs and none of the ledger's jobs needs it."""
    if daemon.holder(own_place(home)) is None or any(map(needs, jobs)):
        return False
    with _alone(home) as alone:
        return alone


def stop_unused(home: Home, jobs: Iterable[Job], environ: Mapping[str, str] = os.environ) -> bool:
    """Ends the user's daemon if no job needs it; returns whether it did."""
    place = own_place(home)
    if daemon.holder(place) is None or any(map(needs, jobs)):
        return False
    with _alone(home) as alone, contextlib.suppress(MpsError):
        if alone:
            daemon.stop(find_program(environ), place, _ENDS_IN)
            return True
    return False


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[bool]:
    """Yields whether no command needs the daemon; while it is so, none begins to."""
    try:
        held = os.open(_lock(home), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except OSError:
        alone = False
    try:
        yield alone
    finally:
        os.close(held)


def _wait(control: Control) -> None:
    """A daemon holds its lock a moment before it listens."""
    ends = time.monotonic() + _READY
    while True:
        try:
            control.percentage()
        except MpsError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.02)
        else:
            return


def _make(home: Home) -> None:
    folder = _folder(home)
    before = os.umask(0)  # other users of the same ledger make theirs beside it
    try:
        folder.parent.mkdir(mode=0o1777 if home.shared else 0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CotenantError(f"--mps: {error.filename}: {error.strerror}") from None
    finally:
        os.umask(before)
    found = folder.lstat()
    if found.st_uid != os.getuid() or folder.is_symlink():
        raise CotenantError(
            f"--mps: the folder {folder} belongs to user {found.st_uid}: let that user or root remove it"
        )


def _folder(home: Home) -> Path:
    return home.runtime / "mps" / str(os.getuid())


def _lock(home: Home) -> Path:
    return _folder(home) / "in-use"

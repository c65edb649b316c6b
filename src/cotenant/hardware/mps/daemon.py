"""Starts and ends MPS control daemons, and finds those that run.

A daemon holds a POSIX lock on a file of its pipe folder for as long as it lives, and the kernel tells which
process that is. Its pid file is not asked: not every version writes it, it stays when the daemon is killed,
and a pid is used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from cotenant.hardware.mps.control import PATH, TIMEOUT, Control, MpsError, NoDaemon, NoProgram, NoReply
from cotenant.hardware.mps.place import Place

_FLOCK = "hhqqi4x"
"""struct flock on 64-bit Linux: type, whence, start, length, pid."""
_MOST_SHOWN = 300
_LARGEST_LOG = 1 << 20
"""Bytes. Each command leaves five lines in the log, and the agent asks every two seconds."""
ENDING = 5.0
"""Seconds that a daemon has to end after it was asked to."""
OTHER_NAMESPACE = 0
"""Stands for a daemon whose pid cannot be known here."""


def holder(place: Place) -> int | None:
    """Returns the pid of the daemon at this place, 0 if it is in another pid namespace, None if none runs."""
    try:
        file = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if kind == fcntl.F_UNLCK else max(OTHER_NAMESPACE, pid)


def start(
    program: Path, place: Place, *, environ: Mapping[str, str] | None = None, options: tuple[str, ...] = ()
) -> int:
    """Starts a daemon in the background and returns its pid. It outlives this process. `environ` is added to
    its environment, which the servers that it starts inherit. One that runs already is left as it is.
    """
    own = {"PATH": PATH, **(environ or {}), **place.environment()}
    with open(os.memfd_create("said"), "w+b") as said:  # the agent may have no folder for files
        try:
            done = subprocess.run(
                [program, "-d", *options],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=TIMEOUT,
                check=False,
                env=own,
                cwd="/",
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise NoReply(f"{program} -d: it was not ready in {TIMEOUT:g} s") from None
        except OSError as error:
            raise NoProgram(f"{program} cannot be run: {error.strerror}") from None
        said.seek(0)
        words = said.read(_MOST_SHOWN).decode(errors="replace").strip()
    found = holder(place)
    if found is None:
        option = f" {' '.join(options)}" if options else ""
        raise MpsError(
            f"{program} -d{option} started no daemon at {place.pipe}: exit code {done.returncode}"
            f"{f', it says {words!r}' if words else ''}"
        )
    return found


def stop(program: Path, place: Place, seconds: int = 1) -> None:
    """Ends the daemon and its servers; clients that are connected fail. Nothing happens where none runs."""
    if holder(place) is None:
        return
    with contextlib.suppress(NoDaemon, NoReply):
        Control(program, place).quit(seconds)
    ends = time.monotonic() + ENDING
    while (pid := holder(place)) is not None and time.monotonic() < ends:
        time.sleep(0.02)
    if pid:  # it hangs; the lock proves that this pid is the daemon's
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def shorten_logs(place: Place) -> None:
    """Empties logs that have grown large. The daemon appends, so it goes on at the beginning. Nothing is
    kept: what is read twice would be reported twice.
    """
    for log in place.logs:
        with contextlib.suppress(OSError):
            if log.stat().st_size > _LARGEST_LOG:
                os.truncate(log, 0)

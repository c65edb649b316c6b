"""Keeps what `cotenant up` must not forget, in a folder of the user beside the ledger.

    declared.json       the workloads that are up, as their files declare them
    NAME.json           a workload's replicas, its last decision, and all that decisions remember
    NAME-1.log          what replica 1 and its `cotenant run` print
    up.log              what a detached `cotenant up` prints
    lock                held by the process that scales

Files are replaced by rename, so that kill -9 leaves the old one or the new one. They are not in the ledger:
decisions are written every few seconds, and all commands of the machine wait for the ledger's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from cotenant.core.errors import BadInput, CotenantError, LedgerUnusable
from cotenant.local import processes
from cotenant.local.home import Home
from cotenant.local.job import Job
from cotenant.local.scalers.file import Declared

DECLARED = "declared.json"
_STOPS = " stops"
LARGEST_LOG = 16 << 20
KEPT_OF_LOG = 4 << 20
"""Bytes of a replica's log, and what is kept of it when it is cut."""


class AlreadyScaling(CotenantError):
    """Another process scales the workloads of this user."""


class ScalerFolder:
    """The files of one user's workloads."""

    def __init__(self, home: Home, uid: int | None = None) -> None:
        self.path = home.folder / f"scalers-{os.getuid() if uid is None else uid}"

    def create(self) -> None:
        """Creates the folder. It holds environments and passwords: nobody else may read it."""
        try:
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            found = self.path.lstat()
        except OSError as error:
            raise LedgerUnusable(f"the folder {self.path} cannot be used: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise LedgerUnusable(
                f"the folder {self.path} must be yours alone, with mode 700: repair it, or set COTENANT_HOME"
            )

    def declared(self) -> list[Declared]:
        """Lists the workloads that are up; BadInput if another version wrote what this one refuses."""
        try:
            data = json.loads((self.path / DECLARED).read_text(encoding="utf-8"))
            return [Declared.from_json(each) for each in data["workloads"]]
        except FileNotFoundError:
            return []
        except OSError as error:  # to take it for empty would stop everything
            raise LedgerUnusable(f"{self.path / DECLARED} cannot be read: {error.strerror}") from None
        except (LookupError, TypeError, ValueError) as error:
            raise BadInput(
                f"{self.path / DECLARED} is damaged ({error!r}): remove it, then `cotenant up` again"
            ) from None

    def change_declared(self, change: Callable[[list[Declared]], list[Declared]]) -> None:
        """Replaces the list of workloads by what `change` makes of it; changes go one after another."""
        with self._locked("declared.lock", wait=True):
            workloads = change(self.declared())
            self._write(DECLARED, {"workloads": [each.to_json() for each in workloads]})

    def declared_version(self) -> tuple[int, int]:
        """Changes whenever the list of workloads does."""
        try:
            found = os.stat(self.path / DECLARED)
        except OSError:
            return (0, 0)
        return (found.st_ino, found.st_mtime_ns)

    def record(self, name: str) -> dict[str, Any]:
        """Reads what is known of a workload; empty if nothing is, or it cannot be read."""
        return self._read(f"{name}.json")

    def write_record(self, name: str, record: dict[str, Any]) -> None:
        self._write(f"{name}.json", record)

    def records(self) -> list[str]:
        """Names the workloads of which something is known."""
        with contextlib.suppress(OSError):
            return sorted(
                name.removesuffix(".json")
                for name in os.listdir(self.path)
                if name.endswith(".json") and not name.startswith(".") and name != DECLARED
            )
        return []

    def up(self, jobs: Iterable[Job]) -> set[str]:
        """Names the workloads of this user of which anything is left: a record, or a job that is marked."""
        user = processes.user(os.getpid())
        marked = {job.workload for job in jobs if job.workload is not None and job.user == user}
        return {*self.records(), *marked}

    def forget(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path / f"{name}.json")

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def cut_log(self, name: str) -> None:
        """Keeps the end of a log that has become too large. Its writers append, so they need not know."""
        path = self.log(name)
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            if size <= LARGEST_LOG:
                return
            with path.open("r+b") as file:
                file.seek(size - KEPT_OF_LOG)
                kept = file.read(KEPT_OF_LOG)
                file.truncate(0)
                os.pwrite(file.fileno(), kept, 0)

    def last_line(self, name: str) -> str:
        """Returns the last line that a replica has printed; empty if there is none."""
        with contextlib.suppress(OSError), self.log(name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
            lines = file.read(2000).decode(errors="replace").splitlines()
            return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        return ""

    @contextlib.contextmanager
    def scaling(self, *, stops: bool = False) -> Iterator[None]:
        """Holds the right to scale; AlreadyScaling if another process has it. With `stops` this process only
        stops workloads, and takes on no others.
        """
        with self._locked("lock", wait=False) as fd:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}{_STOPS if stops else ''}\n".encode(), 0)
            yield

    def scaled_by(self) -> int | None:
        """Returns the PID of the process that scales; None if there is no such process."""
        holder = self._holder()
        if holder is None:
            return None
        pid = holder.removesuffix(_STOPS)
        return int(pid) if pid.isdigit() else 0

    def only_stops(self) -> bool:
        """Whether the process that scales is a `cotenant down`."""
        return (self._holder() or "").endswith(_STOPS)

    def _holder(self) -> str | None:
        """Returns what the process that has the right to scale has written into the lock."""
        try:
            fd = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(fd, 40, 0).decode(errors="replace").strip()
        finally:
            os.close(fd)
        return None

    @contextlib.contextmanager
    def _locked(self, name: str, *, wait: bool) -> Iterator[int]:
        self.create()
        fd = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise AlreadyScaling(f"process {self.scaled_by()} scales these workloads already") from None
            yield fd
        finally:
            os.close(fd)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            data = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _write(self, name: str, data: dict[str, Any]) -> None:
        draft = self.path / f".{name}.{os.getpid()}"
        try:
            draft.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
            draft.chmod(0o600)
            draft.replace(self.path / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise LedgerUnusable(f"{self.path / name} cannot be written: {error.strerror}") from None

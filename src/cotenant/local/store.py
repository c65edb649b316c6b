"""Stores the ledger on disk: SQLite for the rows, one file lock for the order of changes.

Each change holds an exclusive lock on a file beside the ledger: no process polls, the kernel wakes the next,
and releases the lock of a process that dies. Readers take no lock (WAL) and see the last commit. NORMAL is
enough for durability: only a crash of the machine can lose a commit, and it ends every command as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cotenant.core.demand import Demand
from cotenant.core.errors import CotenantError, LedgerUnusable
from cotenant.core.gpu import GPU
from cotenant.core.line import order
from cotenant.local.ended import EndedJob
from cotenant.local.home import Home
from cotenant.local.job import Job

VERSION = 2
_CHECKPOINT = 250
"""Pages in the write-ahead log before a checkpoint, which costs two syncs of the disk."""
HISTORY = 64
"""The number of past grants that are remembered: placement takes from their demands what is likely to come,
and the line takes from their owners whose turn it is.
"""
ENDED = 1000
"""The number of ended jobs that are kept."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    waiting INTEGER NOT NULL,
    owner TEXT NOT NULL,
    priority INTEGER NOT NULL,
    since REAL NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS line ON jobs (id, owner, priority, since) WHERE waiting;
CREATE TABLE IF NOT EXISTS cards (uuid TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS history (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    demand TEXT NOT NULL,
    owner TEXT
);
CREATE TABLE IF NOT EXISTS ended (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    record TEXT NOT NULL
);
PRAGMA user_version = {VERSION};
"""
_FROM_1 = """
DROP INDEX line;
DROP TABLE history;
ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET owner = json_extract(record, '$.user');
"""
"""What a ledger of version 1 lacks: turns, priorities and the jobs that have ended."""

_UNINTERRUPTED = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)
"""Blocked while the lock is held: a runner stopped by Ctrl-Z then would block all others."""


class Books:
    """The ledger's rows inside one change. Changes to them are written at the end, all or nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._stored = {job.id: job for job in _jobs(connection)}
        self.jobs = dict(self._stored)
        self.once_committed: list[Callable[[], None]] = []
        """Called after the commit, before any other change."""
        self.unless_committed: list[Callable[[], None]] = []
        """Called if the change fails: undo what was done outside the ledger."""

    @property
    def granted(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.shares]

    @property
    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if not job.shares]

    def history(self) -> list[Demand]:
        rows = self._connection.execute("SELECT demand FROM history ORDER BY number DESC LIMIT ?", (HISTORY,))
        with _readable():
            return [Demand.from_json(json.loads(text)) for (text,) in rows]

    def turns(self) -> dict[str, int]:
        """Returns the number of each owner's last turn."""
        return _turns(self._connection)

    def remember(self, demand: Demand, turn_of: str | None = None) -> None:
        """Remembers a grant, and the owner that took a turn with it."""
        self._connection.execute(
            "INSERT INTO history (demand, owner) VALUES (?, ?)", (_text(demand.to_json()), turn_of)
        )
        self._connection.execute(
            "DELETE FROM history WHERE number <= (SELECT max(number) FROM history) - ?", (HISTORY,)
        )

    def keep_ended(self, ended: EndedJob) -> None:
        """Keeps what is left to say of a job. The first record of an id stays, but gets an exit code that was
        not known.
        """
        known = _find_ended(self._connection, ended.id)
        if known is not None and (known.code is not None or ended.code is None):
            return
        record = ended if known is None else replace(known, code=ended.code)
        self._connection.execute(
            "INSERT INTO ended (id, record) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            (record.id, _text(record.to_json())),
        )
        self._connection.execute(
            "DELETE FROM ended WHERE number <= (SELECT max(number) FROM ended) - ?", (ENDED,)
        )

    def ended(self, id: str) -> EndedJob | None:
        return _find_ended(self._connection, id)

    def cards(self) -> dict[str, GPU]:
        return _cards(self._connection)

    def know_cards(self, gpus: dict[str, GPU]) -> None:
        """Stores what is known of the GPUs, for when one of them no longer answers."""
        if gpus == self.cards():
            return
        self._connection.execute("DELETE FROM cards")
        rows = [(gpu.uuid, _text([gpu.index, gpu.model, gpu.memory, gpu.parent])) for gpu in gpus.values()]
        self._connection.executemany("INSERT INTO cards VALUES (?, ?)", rows)

    def write(self) -> None:
        gone = [(id,) for id in self._stored.keys() - self.jobs.keys()]
        changed = [job for id, job in self.jobs.items() if self._stored.get(id) is not job]
        self._connection.executemany("DELETE FROM jobs WHERE id = ?", gone)
        self._connection.executemany(
            "INSERT OR REPLACE INTO jobs (id, name, waiting, owner, priority, since, record) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (job.id, job.name, not job.shares, job.owner, job.priority, job.since, _text(job.to_json()))
                for job in changed
            ],
        )


class LedgerStore:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: tuple[sqlite3.Connection, tuple[int, int]] | None = None

    @contextlib.contextmanager
    def change(self) -> Iterator[Books]:
        """Locks the ledger; changes to the books are committed at the end, or none of them if it raises."""
        with _signals_held(), self.locked(), self._plainly():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            books = None
            try:
                books = Books(connection)
                yield books
                books.write()
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                for undo in books.unless_committed if books is not None else ():
                    undo()
                raise
            for action in books.once_committed:
                action()

    def jobs(self) -> list[Job]:
        """Lists all jobs as of the last commit."""
        with self._plainly():
            return _jobs(self._connection())

    def find(self, id: str) -> Job | None:
        with self._plainly():
            row = self._connection().execute("SELECT record FROM jobs WHERE id = ?", (id,)).fetchone()
            return None if row is None else _job(row[0])

    def ahead_of(self, job: Job) -> tuple[int, Job | None]:
        """Returns how many jobs wait before this one, and the first of them; cheap, for waiters that poll."""
        with self._plainly():
            connection = self._connection()
            rows = connection.execute("SELECT id, owner, priority, since FROM jobs WHERE waiting")
            line = order([_Place(*row) for row in rows], _turns(connection))
            before = next((at for at, place in enumerate(line) if place.id == job.id), len(line))
        return before, self.find(line[0].id) if line else None

    def turns(self) -> dict[str, int]:
        with self._plainly():
            return _turns(self._connection())

    def ended(self, most: int = ENDED) -> list[EndedJob]:
        """Lists the jobs that have ended, the last first."""
        with self._plainly():
            rows = self._connection().execute(
                "SELECT record FROM ended ORDER BY number DESC LIMIT ?", (most,)
            )
            return [_ended(text) for (text,) in rows]

    def cards(self) -> dict[str, GPU]:
        with self._plainly():
            return _cards(self._connection())

    def close(self) -> None:
        if self._open is not None:
            self._open[0].close()
            self._open = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        mode = 0o666 if self._home.shared else 0o600
        try:
            with _whatever_the_umask(self._home.shared):
                fd = os.open(self._home.lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, mode)
        except OSError as error:
            raise LedgerUnusable(
                f"the ledger's lock {self._home.lock} cannot be opened: {error.strerror}"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def set_aside(self) -> Path | None:
        """Renames a damaged ledger and keeps it for inspection. The caller holds the lock."""
        self.close()
        aside = None
        for suffix in ("", "-wal", "-shm"):
            path = Path(f"{self._home.ledger}{suffix}")
            target = Path(f"{self._home.ledger}.damaged{suffix}")
            with contextlib.suppress(FileNotFoundError):
                path.replace(target)
                aside = aside or target
        return aside

    def _connection(self) -> sqlite3.Connection:
        path = self._home.ledger
        if self._open is not None:
            connection, file = self._open
            if file == _file(path):
                return connection
            self.close()  # somebody has put a new ledger in its place
        with contextlib.suppress(FileExistsError), _whatever_the_umask(self._home.shared):
            mode = 0o666 if self._home.shared else 0o600
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        try:
            self._initialise(connection)
        except BaseException:
            connection.close()
            raise
        self._open = connection, _file(path)
        return connection

    def _initialise(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise LedgerUnusable(
                f"the ledger {self._home.ledger} was written by a newer Cotenant (version {version}; this "
                f"one knows {VERSION}): upgrade, or name another folder in COTENANT_HOME"
            )
        if version < VERSION:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()  # another may have been first
            for statement in ((_FROM_1 if version == 1 else "") + _SCHEMA).split(";"):
                connection.execute(statement)
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        """Turns errors of SQLite into LedgerUnusable, with what is wrong with the file and what to do."""
        path = self._home.ledger
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerUnusable(_explain(path, error)) from error
        except OSError as error:
            if error.filename is None or not str(error.filename).startswith(str(path)):
                raise
            raise LedgerUnusable(f"the ledger {path} cannot be opened: {error.strerror}") from error


def _explain(path: Path, error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text or "I/O" in text:
        return f"the ledger {path} cannot be written ({text}): is the disk full? It stays as it was"
    if "readonly" in text or "unable to open" in text or "locked" in text:
        return f"the ledger {path} cannot be written ({text}): check its owner and mode, or set COTENANT_HOME"
    return f"the ledger {path} is damaged ({text}): `cotenant doctor --fix` rebuilds it from what is running"


def _jobs(connection: sqlite3.Connection) -> list[Job]:
    return [_job(text) for (text,) in connection.execute("SELECT record FROM jobs")]


def _job(text: str) -> Job:
    with _readable():
        return Job.from_json(json.loads(text))


class _Place(NamedTuple):
    """The columns of a waiting job that its place in line depends on."""

    id: str
    owner: str
    priority: int
    since: float


def _turns(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(
        connection.execute("SELECT owner, max(number) FROM history WHERE owner IS NOT NULL GROUP BY owner")
    )


def _find_ended(connection: sqlite3.Connection, id: str) -> EndedJob | None:
    row = connection.execute("SELECT record FROM ended WHERE id = ?", (id,)).fetchone()
    return None if row is None else _ended(row[0])


def _ended(text: str) -> EndedJob:
    with _readable():
        return EndedJob.from_json(json.loads(text))


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Treats a row that cannot be parsed as a damaged ledger, even if SQLite finds the file intact."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, CotenantError) as error:
        raise sqlite3.DatabaseError(f"a row is unreadable: {error!r}") from error


def _cards(connection: sqlite3.Connection) -> dict[str, GPU]:
    known = {}
    for uuid, text in connection.execute("SELECT uuid, record FROM cards"):
        with _readable():
            index, model, memory, parent = json.loads(text)
            known[uuid] = GPU(uuid, index, model, memory, parent=parent)
    return known


def _file(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _UNINTERRUPTED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _whatever_the_umask(shared: bool) -> Iterator[None]:
    """Clears the umask: files in a shared folder must be writable for all from the moment they exist."""
    if not shared:
        yield
        return
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)

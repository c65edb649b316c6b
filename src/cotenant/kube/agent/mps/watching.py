"""Watches one MPS control daemon: its servers, their clients, and what becomes of them.

A fault of one client ends its server, and with it every client of that server. Which containers had a process
on a server must be known before it is gone, so it is asked whenever a client has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from cotenant.hardware.mps.control import Control, MpsError
from cotenant.hardware.mps.control_log import ControlLog, News
from cotenant.kube.agent.cards.cgroups import Owner, owners_of_processes

_ASK = 10.0
"""Seconds between two lists of clients that nothing has called for. Each question is a process."""
_AFTER_NEWS = 5
"""Looks that ask after something happened: the log tells of a server or a client before the lists have it."""


class Incident(NamedTuple):
    """Something that pods must be told of."""

    kind: Literal["daemon ended", "server ended", "fault", "waits for another user"]
    owners: frozenset[Owner]
    """The containers that it has hit."""
    words: str


@dataclass
class DaemonWatch:
    """What was seen of one daemon."""

    control: Callable[[], Control]
    """Raises MpsError where the program is missing."""
    log: ControlLog
    lock: Callable[[], int | None]
    """Returns the daemon's pid; None if none runs."""
    owners: Callable[[Iterable[int]], Mapping[int, Owner | None]] = owners_of_processes
    clock: Callable[[], float] = time.monotonic
    pid: int | None = None
    restarts: int = 0
    """Times at which another daemon than before was found."""
    servers: dict[int, frozenset[Owner]] = field(default_factory=dict)
    """The containers with a process on each server."""
    _last: int | None = None
    _asked: float = float("-inf")
    _due: int = 0
    _reported: set[int] = field(default_factory=set)
    """Servers whose fault was reported: their end is no news."""

    def look(self) -> list[Incident]:
        """Looks once; returns what pods must be told of."""
        news, pid = self.log.read(), self.lock()
        incidents = [*self._waiting(news)]
        if news.fault:
            incidents += self._fault()
        if self.pid is not None and pid != self.pid:
            incidents += self._ended_all()
            self.log.users = dict(news.started)
        if pid is not None and self._last not in (None, pid):
            self.restarts += 1
        self.pid, self._last = pid, self._last if pid is None else pid
        if pid is None:
            return incidents
        if news.started or news.ended or news.clients:
            self._due = _AFTER_NEWS
        if self._due or self.clock() - self._asked >= _ASK:
            self._due = max(0, self._due - 1)
            incidents += self._ask()
        return incidents

    def _ask(self) -> list[Incident]:
        self._asked = self.clock()
        if not self.servers and not self.log.users and not _has_children(self.pid):
            return []  # each question is a process of its own: none where there is nothing to know
        try:
            control = self.control()
            clients = {server: control.clients(server) for server in control.servers()}
        except MpsError:
            return []  # the supervisor reports it
        self.log.users = {server: uid for server, uid in self.log.users.items() if server in clients}
        gone = [server for server in self.servers if server not in clients]
        incidents = [found for server in gone if (found := self._ended(server)) is not None]
        for server, pids in clients.items():
            living = {owner for owner in self.owners(pids).values() if owner is not None}
            self.servers[server] = frozenset(living)
        return incidents

    def _ended(self, server: int) -> Incident | None:
        """A server that had no clients is ended in good order, such as for another user."""
        owners = self.servers.pop(server)
        if server in self._reported:
            self._reported.discard(server)
            return None
        if not owners:
            return None
        return Incident("server ended", owners, f"the MPS server {server} has ended while it was in use")

    def _ended_all(self) -> list[Incident]:
        owners = frozenset(owner for of in self.servers.values() for owner in of)
        self.servers.clear()
        self._reported.clear()
        if not owners:
            return []
        return [
            Incident("daemon ended", owners, "the node's MPS control daemon has ended while it was in use")
        ]

    def _fault(self) -> list[Incident]:
        """The log names no server. One daemon has one at a time, unless it serves several users."""
        faulty = {server: owners for server, owners in self.servers.items() if server not in self._reported}
        owners = frozenset(owner for of in faulty.values() for owner in of)
        self._reported |= set(faulty)
        if not owners:
            return []
        words = "a process on the same MPS server has faulted, which ended the work of all its clients"
        return [Incident("fault", owners, words)]

    def _waiting(self, news: News) -> Iterable[Incident]:
        """Finds clients that wait since the server belongs to another user."""
        for client in news.clients:
            others = {uid for uid in self.log.users.values() if uid != client.uid}
            if not client.waits or not client.pid or not others or client.uid in self.log.users.values():
                continue
            owner = self.owners([client.pid]).get(client.pid)
            if owner is not None:
                serving = ", ".join(map(str, sorted(others)))
                words = f"a process of user {client.uid} waits: the MPS server serves user {serving}"
                yield Incident("waits for another user", frozenset({owner}), words)


def _has_children(pid: int | None, proc: Path = Path("/proc")) -> bool:
    """Whether a daemon has servers; True where that cannot be seen."""
    try:
        return bool((proc / str(pid) / "task" / str(pid) / "children").read_bytes().strip())
    except OSError:
        return True

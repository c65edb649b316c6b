"""Reads the log of an MPS control daemon: servers that begin and end, clients that come or wait.

The daemon answers only what is so at the moment. That a server ended by a fault, and that a client of another
user waits, stands in its log alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"\[[^\]\n]{1,80}\] (.{1,300})")
_STARTED = re.compile(r"Starting new server ([0-9]{1,10}) for user ([0-9]{1,10})")
_ENDED = re.compile(r"Server ([0-9]{1,10}) exited with status (-?[0-9]{1,10})")
_CLIENT = re.compile(r"NEW CLIENT ([0-9]{1,10}) from user ([0-9]{1,10}): (.*)")
_FAULT = "Server encountered a fatal exception"
_MOST_READ = 1 << 18
"""Bytes of one look. A daemon that wrote more since the last is read from its newer end."""


class Client(NamedTuple):
    pid: int
    """0 if the daemon cannot see the client's pid namespace."""
    uid: int
    waits: bool
    """Whether it had to wait for a server."""


class News(NamedTuple):
    """What was written since the last look."""

    started: Mapping[int, int] = {}
    """Users of servers that were started, by the server's pid."""
    ended: Mapping[int, int] = {}
    """Exit statuses of servers that ended, by pid."""
    clients: tuple[Client, ...] = ()
    fault: bool = False
    """Whether a server was ended by a fault of one of its clients."""


@dataclass
class ControlLog:
    """`read()` returns the news; the first look returns nothing, but remembers whose each server is."""

    path: Path
    users: dict[int, int] = field(default_factory=dict)
    """Users of servers, by the server's pid."""
    _at: int = -1
    _file: int = -1

    def read(self) -> News:
        first = self._at < 0
        found = news_of(self._lines())
        self.users |= found.started
        for pid in found.ended:
            self.users.pop(pid, None)
        return News(started=found.started) if first else found

    def _lines(self) -> list[str]:
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file or status.st_size < self._at:
                    self._at, self._file = 0, status.st_ino  # another file, or it was cut
                file.seek(max(self._at, 0, status.st_size - _MOST_READ))
                text = file.read(_MOST_READ)
                whole = text[: text.rfind(b"\n") + 1]
                self._at = file.tell() - len(text) + len(whole)
        except OSError:
            self._at = max(self._at, 0)
            return []
        return whole.decode(errors="replace").split("\n")


def news_of(lines: list[str]) -> News:
    """Reads lines of a control.log."""
    started: dict[int, int] = {}
    ended: dict[int, int] = {}
    clients: list[Client] = []
    fault = False
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        text = match[1]
        if found := _STARTED.match(text):
            started[int(found[1])] = int(found[2])
        elif found := _ENDED.match(text):
            ended[int(found[1])] = int(found[2])
        elif found := _CLIENT.match(text):
            clients.append(Client(int(found[1]), int(found[2]), waits="pending list" in found[3]))
        elif text.startswith(_FAULT):
            fault = True
    return News(started, ended, tuple(clients), fault)

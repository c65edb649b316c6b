"""Wakes a job that waits in line.

Each waiter listens on an abstract Unix socket, so one that is killed leaves no file behind. A wake-up that is
lost does no harm: waiters also poll, only less often.
"""

from __future__ import annotations

import contextlib
import select
import socket


def _address(id: str) -> str:
    return f"\0cotenant-wake-{id}"


class Bell:
    """The socket on which a waiter sleeps."""

    def __init__(self, id: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(_address(id))

    def wait(self, seconds: float) -> bool:
        """Sleeps; True if it was woken, False if the time is over."""
        if not select.select([self._socket], [], [], max(0.0, seconds))[0]:
            return False
        with contextlib.suppress(BlockingIOError):
            self._socket.recv(16)
        return True

    def close(self) -> None:
        self._socket.close()


def ring(id: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        with contextlib.suppress(OSError):  # it has polled meanwhile, or has exited
            sender.sendto(b"1", _address(id))

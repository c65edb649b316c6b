"""Defines what every signal answers: how much work waits in a queue, or one figure of a query.

Two failures differ. `SignalError`: the server did not answer, or answered something that is not a figure.
`NoSample`: it answered, and said that it has no figure now (NaN, no series). Neither is a zero: zero is *no
traffic*.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from cotenant.core.errors import CotenantError

Secrets = Callable[[str, str], Awaitable[str]]
"""Reads one value of a Secret, by the Secret's name and the key in it. A missing one raises a CotenantError
that says which.
"""


class SignalError(CotenantError):
    """A signal has failed. The message says what was asked, what came back and what to do; it holds no
    credential.
    """

    @property
    def reason(self) -> str:
        return str(self)


class NoSample(SignalError):
    """The server answered that there is no figure at present: NaN, or a query without a series."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of a queue at one instant. None: this queue does not tell it. Never NaN and never
    negative.
    """

    at: float
    """Wall-clock seconds since 1970."""
    backlog: float | None = None
    """Messages that wait, without those that are being worked on."""
    arrived: float | None = None
    """Messages that ever arrived: a counter, which may be reset."""
    completed: float | None = None
    """Messages that were ever completed: a counter, which may be reset."""
    in_flight: float | None = None
    """Messages that are being worked on at this instant."""


class Signal(Protocol):
    """A queue that can be read, again and again. It reconnects by itself; one failed read says nothing about
    the next.
    """

    async def read(self) -> Reading:
        """Reads the queue once; raises SignalError."""

    async def close(self) -> None:
        """Lets go of the connection, which others may share."""


class Query(Protocol):
    """One figure from elsewhere, such as a processing time in seconds."""

    async def read(self) -> float:
        """Asks once; raises SignalError, and NoSample where there is no figure at present."""

    async def close(self) -> None:
        """Lets go of the connection, which others may share."""

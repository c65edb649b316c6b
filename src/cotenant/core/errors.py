"""One tree of errors, so that a composition root can turn any of them into a message and an exit code.

A message tells what was asked, what was found and what to do next; it is ready to be shown as it is.
"""

from __future__ import annotations

from typing import ClassVar


class CotenantError(Exception):
    """Something a person can act on. Anything that is not one of these is a bug."""

    exit_code: ClassVar[int] = 1


class BadInput(CotenantError):
    """What was asked can never be done, now or later."""

    exit_code = 2


class NoRoom(CotenantError):
    """There is no room now; there may be later (75 is EX_TEMPFAIL)."""

    exit_code = 75


class CommandNotFound(CotenantError):
    """As a shell answers."""

    exit_code = 127


class NotExecutable(CotenantError):
    """As a shell answers."""

    exit_code = 126


class LedgerUnusable(CotenantError):
    """The stored ledger cannot be read or written."""


class DuplicateCharge(CotenantError):
    """A grant of this id is charged already: charging it twice would leak the first."""


class UnknownGrant(CotenantError):
    """No grant of this id is charged."""

"""Defines the errors that are meant for people; a command turns each into a message and an exit code.

A message says what was asked, what was found and what to do next; it is shown as it is.
"""

from __future__ import annotations

from typing import ClassVar


class CotenantError(Exception):
    """An error that a person can act on. Any other exception is a bug."""

    exit_code: ClassVar[int] = 1


class BadInput(CotenantError):
    """The request is not valid: it can be done neither now nor later."""

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

"""Defines what is raised where no setting can be computed; each message says what to do."""

from __future__ import annotations


class ShareError(Exception):
    """The settings that were asked for cannot be computed."""


class BadValue(ShareError):
    """An argument is not valid; the message begins with its name."""


class NoGrant(ShareError):
    """No grant was found for this process."""
